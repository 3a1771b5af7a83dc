//! GPU contents that lie apart from images, and killed operations that are not undone.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::image::disk_space;
use stasis_linux::file;

use super::failed;
use super::text::{Family, Parts};
use crate::command_error::CommandError;
use crate::recover::cut_off;

pub(super) fn families(settings: &Settings, parts: &mut Parts) -> Vec<Family> {
    let mut used = Family::gauge(
        "stasis_gpu_contents_used_bytes",
        "What GPU contents take that lie apart from images (gpu_contents.directory).",
    );
    let mut free = Family::gauge(
        "stasis_gpu_contents_free_bytes",
        "What the file system of that directory has free.",
    );
    if let Some(directory) = settings.gpu_contents.directory() {
        let (bytes, unreadable) = used_in(directory);
        used.add(&[], bytes as f64);
        let found = match unreadable {
            None => disk_space::free(directory).map_err(unread(directory)),
            Some((path, error)) => Err(unread(&path)(error)),
        };
        if let Some(Some(bytes)) = parts.read("gpu-contents", found) {
            free.add(&[], bytes as f64);
        }
    }
    let mut left = Family::gauge(
        "stasis_leftovers",
        "Operations that were killed and not undone yet (stasis recover).",
    );
    let state_dir = &settings.paths.state_dir;
    let operations = cut_off(state_dir).map_err(unread(state_dir));
    if let Some(operations) = parts.read("leftover-operations", operations) {
        left.add(&[("what", "operation")], operations.len() as f64);
    }
    vec![used, free, left]
}

fn unread(path: &Path) -> impl Fn(io::Error) -> CommandError {
    failed("read", path.display().to_string())
}

/// Returns the bytes of all contents in a directory, and the first error of reading them.
fn used_in(parent: &Path) -> (u64, Option<(PathBuf, io::Error)>) {
    let read = || {
        file::entries(parent)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    };
    let (contents, mut unreadable) = match read() {
        Ok(contents) => (contents, None),
        Err(error) => (Vec::new(), Some((parent.to_owned(), error))),
    };
    let mut bytes = 0;
    for own in contents {
        match bytes_of(&own) {
            Ok(more) => bytes += more,
            Err(error) => drop(unreadable.get_or_insert((own, error))),
        }
    }
    (bytes, unreadable)
}

/// Returns the bytes of the files in a directory. A file that is removed meanwhile has none, and a
/// file in place of the directory is not counted.
fn bytes_of(directory: &Path) -> io::Result<u64> {
    let entries = match fs::read_dir(directory) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(0);
        }
        entries => entries?,
    };
    let mut bytes = 0;
    for entry in entries {
        match entry?.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // `st_blocks` counts 512 bytes on every file system.
            file => bytes += file?.blocks() * 512,
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(settings: &Settings) -> String {
        let mut parts = Parts::new();
        let mut families = families(settings, &mut parts);
        families.push(parts.family);
        families.iter().map(Family::to_string).collect()
    }

    fn settings(directory: &Path) -> Settings {
        let mut settings = Settings::default();
        settings.paths.state_dir = directory.join("run");
        settings
    }

    #[test]
    fn an_empty_machine_has_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(directory.path());
        assert!(!text(&settings).contains("gpu_contents_used_bytes 0"));
        settings.gpu_contents.directory = directory.path().join("apart");
        let text = text(&settings);
        for sample in [
            "stasis_gpu_contents_used_bytes 0",
            "stasis_leftovers{what=\"operation\"} 0",
            "stasis_read_success{part=\"gpu-contents\"} 1",
            "stasis_read_success{part=\"leftover-operations\"} 1",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(text.contains("stasis_gpu_contents_free_bytes "));
    }

    /// A link to itself stands for a disk that does not give it back.
    #[test]
    fn what_cannot_be_read_hides_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(directory.path());
        let apart = directory.path().join("apart");
        fs::create_dir_all(apart.join("1")).unwrap();
        fs::write(apart.join("1/pack"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("2", apart.join("2")).unwrap();
        std::os::unix::fs::symlink("run", directory.path().join("run")).unwrap();
        settings.gpu_contents.directory = apart;
        let text = text(&settings);
        for sample in [
            "stasis_read_success{part=\"gpu-contents\"} 0",
            "stasis_read_success{part=\"leftover-operations\"} 0",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(!text.contains("stasis_leftovers{what"), "{text}");
        let used = "stasis_gpu_contents_used_bytes ";
        let used = text.lines().find_map(|line| line.strip_prefix(used));
        let used: u64 = used.unwrap().parse().unwrap();
        assert!(used >= 1 << 20, "{text}");
    }
}
