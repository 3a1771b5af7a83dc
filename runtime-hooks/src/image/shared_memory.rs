//! The files that a container has in its `/dev/shm`, in an archive in its image.
//!
//! tar(1) makes it, as CRIU does for each tmpfs of its own, so that there is one way for sparse
//! files, links and odd names. Sockets are left out: CRIU makes them where their processes have
//! bound them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use stasis_linux::file;

use crate::host::environment;

/// Its name in an image directory: one that the manifest lists, with its hash.
pub(crate) const FILE_NAME: &str = "stasis-dev-shm.tar.img";

/// Puts all files of a directory into an image.
///
/// # Errors
/// An I/O error, or what tar says.
pub(crate) fn store(directory: &Path, image: &Path) -> io::Result<()> {
    let archive = File::create_new(image.join(FILE_NAME))?;
    let options = ["--create", "--file=-", "--sparse", "--one-file-system"];
    tar(
        &options,
        directory,
        &[OsStr::new(".")],
        Stdio::null(),
        archive.into(),
    )
}

/// Puts the files of an image into a directory.
pub(crate) fn load(image: &Path, directory: &Path) -> io::Result<()> {
    let archive = file::open(&image.join(FILE_NAME))?.ok_or(io::ErrorKind::NotFound)?;
    let options = [
        "--extract",
        "--file=-",
        "--preserve-permissions",
        "--same-owner",
    ];
    tar(&options, directory, &[], archive.into(), Stdio::null())
}

/// Removes all files of a directory.
pub(crate) fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

fn tar(
    options: &[&str],
    directory: &Path,
    names: &[&OsStr],
    stdin: Stdio,
    stdout: Stdio,
) -> io::Result<()> {
    let mut command = Command::new("tar");
    environment::make(&mut command);
    command.args(options).arg("--numeric-owner");
    command.arg("--directory").arg(directory).args(names);
    command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
    let output = command.spawn()?.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{} ({})",
        said.trim(),
        output.status
    )))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_come_back_as_they_were() {
        let [from, image, to] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        fs::set_permissions(from.path(), Permissions::from_mode(0o1777)).unwrap();
        let odd = "-a \"b\"\n\\x";
        fs::write(from.path().join(odd), "odd").unwrap();
        fs::create_dir(from.path().join("below")).unwrap();
        fs::hard_link(from.path().join(odd), from.path().join("below/same")).unwrap();
        symlink("/etc/passwd", from.path().join("link")).unwrap();
        let sparse = File::create(from.path().join("sparse")).unwrap();
        sparse
            .set_permissions(Permissions::from_mode(0o640))
            .unwrap();
        sparse.write_all_at(b"end", 1 << 34).unwrap();
        store(from.path(), image.path()).unwrap();
        load(image.path(), to.path()).unwrap();
        let found = |name: &str| to.path().join(name).symlink_metadata().unwrap();
        assert_eq!(fs::read(to.path().join("below/same")).unwrap(), b"odd");
        assert_eq!(found("below/same").ino(), found(odd).ino());
        assert!(found("link").is_symlink());
        assert_eq!(
            (found("sparse").len(), found("sparse").mode() & 0o777),
            ((1 << 34) + 3, 0o640)
        );
        assert!(found("sparse").blocks() < 1 << 12);
        assert_eq!(fs::metadata(to.path()).unwrap().mode() & 0o7777, 0o1777);
        clear(to.path()).unwrap();
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_archive_that_is_cut_off_is_an_error() {
        let [from, image, to] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        fs::write(from.path().join("file"), vec![1; 1 << 20]).unwrap();
        store(from.path(), image.path()).unwrap();
        let archive = image.path().join(FILE_NAME);
        File::options()
            .write(true)
            .open(archive)
            .unwrap()
            .set_len(1 << 19)
            .unwrap();
        let error = load(image.path(), to.path()).unwrap_err().to_string();
        assert!(error.contains("tar"), "{error}");
    }
}
