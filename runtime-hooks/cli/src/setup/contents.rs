//! The settings of stasis itself: the directory of GPU contents that lie apart from images.

use std::path::Path;

use super::SetupError;
use super::tables::Toml;

pub(super) fn edit(toml: &mut Toml, directory: &Path) -> Result<(), SetupError> {
    match directory.to_str().filter(|_| directory.is_absolute()) {
        Some(named) => toml.put(&["gpu_contents"], "directory", named),
        None => Err(toml.wrong(format!("{} is not an absolute path", directory.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_set_and_all_else_stays() {
        let set = |before, directory: &str| {
            let mut toml = Toml::parse(Path::new("x"), before).unwrap();
            let done = edit(&mut toml, Path::new(directory));
            done.map(|()| toml.text().unwrap())
                .map_err(|error| error.to_string())
        };
        let made = set(None, "/dev/shm/gpu").unwrap();
        assert_eq!(made, "[gpu_contents]\ndirectory = \"/dev/shm/gpu\"\n");
        let theirs = "# mine\n[gpu_contents]\nthreads = 3 # why\n";
        let after = set(Some(theirs), "/gpu").unwrap();
        assert_eq!(after, format!("{theirs}directory = \"/gpu\"\n"));
        assert!(set(None, "gpu").unwrap_err().contains("absolute"));
    }
}
