//! The settings of stasis itself: the directory of GPU contents that lie apart from images.

use std::path::Path;

use super::change::{self, Change};
use super::{SetupError, tables};

pub(super) fn change(directory: &Path) -> Result<Change, SetupError> {
    let path = Path::new(stasis_config::DEFAULT_PATH);
    let before = change::read(path)?;
    let after = changed(path, before.as_deref(), directory)?;
    Ok(Change::of(path, before, Some(after)))
}

fn changed(path: &Path, before: Option<&str>, directory: &Path) -> Result<String, SetupError> {
    let named = directory.to_str().filter(|_| directory.is_absolute());
    let named = named.ok_or_else(|| SetupError::Content {
        path: path.to_owned(),
        why: format!("{} is not an absolute path", directory.display()),
    })?;
    let mut document = tables::parse(path, before)?;
    tables::put(path, &mut document, &["gpu_contents"], "directory", named)?;
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_set_and_all_else_stays() {
        let set = |before, directory: &str| {
            let said = changed(Path::new("x"), before, Path::new(directory));
            said.map_err(|error| error.to_string())
        };
        let made = set(None, "/dev/shm/gpu").unwrap();
        assert_eq!(made, "[gpu_contents]\ndirectory = \"/dev/shm/gpu\"\n");
        let theirs = "# mine\n[gpu_contents]\nthreads = 3 # why\n";
        let after = set(Some(theirs), "/gpu").unwrap();
        assert_eq!(after, format!("{theirs}directory = \"/gpu\"\n"));
        assert!(set(None, "gpu").unwrap_err().contains("absolute"));
    }
}
