//! An image's record of the directories that its container had mounted, and their files that it
//! carries, in an archive each.
//!
//! tar(1) makes an archive, as CRIU does for each tmpfs of its own, so that there is one way for
//! sparse files, links and odd names. Sockets are left out: CRIU makes them where their processes
//! have bound them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use stasis_host::environment;
use stasis_linux::file;

use crate::container::mounted::{Files, Mounted};
use crate::image::files::FileError;

/// A directory that a container had mounted, and that had files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountedFiles {
    /// Its path in the container. The path is compared with those of a new container, and nothing
    /// is opened by it.
    pub(crate) destination: PathBuf,
    /// The number of the archive, if the image carries the files.
    pub(crate) archive: Option<u16>,
}

/// Returns an archive's name in an image directory: the manifest lists it, with its hash.
pub(crate) fn archive_name(number: u16) -> String {
    format!("{PREFIX}{number}{SUFFIX}")
}

const PREFIX: &str = "stasis-mounted-";
const SUFFIX: &str = ".tar.img";

/// Whether a file of an image is such an archive.
pub(crate) fn is_archive(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Whether an image carries files: if its checkpoint was cut off, no manifest may list them.
pub(crate) fn carries_files(image: &Path) -> Result<bool, FileError> {
    let look = || {
        for entry in fs::read_dir(image)? {
            if is_archive(&entry?.file_name().to_string_lossy()) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    look().map_err(|source| FileError::Io {
        path: image.to_owned(),
        source,
    })
}

/// Puts all files that end with their container into an image. Returns the mounts with files.
///
/// # Errors
/// An I/O error of a directory whose files end, or an error of tar.
pub(crate) fn store(all: &[Mounted], image: &Path) -> io::Result<Vec<MountedFiles>> {
    let mut found = Vec::new();
    for (mounted, number) in all.iter().zip(0..) {
        let archive = match (mounted.is_empty(), mounted.files) {
            (Ok(true), _) | (Err(_), Files::Stay) => continue,
            (Err(error), Files::End) => return Err(error),
            (Ok(false), Files::Stay) => None,
            (Ok(false), Files::End) => {
                archive(&mounted.source, &image.join(archive_name(number)))?;
                Some(number)
            }
        };
        found.push(MountedFiles {
            destination: mounted.destination.clone(),
            archive,
        });
    }
    Ok(found)
}

fn archive(directory: &Path, archive: &Path) -> io::Result<()> {
    let archive = File::create_new(archive)?;
    let options = ["--create", "--file=-", "--sparse", "--one-file-system"];
    tar(
        &options,
        directory,
        &[OsStr::new(".")],
        Stdio::null(),
        archive.into(),
    )
}

/// Puts the files of an archive into a directory.
pub(crate) fn load(archive: &Path, directory: &Path) -> io::Result<()> {
    let archive = file::open(archive)?.ok_or(io::ErrorKind::NotFound)?;
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
        let [shared, empty, volume] = [("/dev/shm", &from), ("/empty", &to), ("/data", &from)].map(
            |(destination, directory)| Mounted {
                destination: destination.into(),
                source: directory.path().to_owned(),
                files: Files::End,
            },
        );
        let volume = Mounted {
            files: Files::Stay,
            ..volume
        };
        let stored = store(&[empty, shared, volume], image.path()).unwrap();
        let expected = [("/dev/shm", Some(1)), ("/data", None)];
        let expected = expected.map(|(destination, archive)| MountedFiles {
            destination: destination.into(),
            archive,
        });
        assert_eq!(stored, expected);
        assert_eq!(fs::read_dir(image.path()).unwrap().count(), 1);
        assert!(is_archive(&archive_name(1)));
        load(&image.path().join(archive_name(1)), to.path()).unwrap();
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
        let path = image.path().join(archive_name(0));
        archive(from.path(), &path).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 19).unwrap();
        let error = load(&path, to.path()).unwrap_err().to_string();
        assert!(error.contains("tar"), "{error}");
    }
}
