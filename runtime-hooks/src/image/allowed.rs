//! Which images may be restored at all: whoever made one decides what runs as root here.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// CRIU reads a directory of earlier memory by this name of a link.
const PARENT: &str = "parent";
/// So many images may refer to each other.
const MAX_PARENTS: usize = 64;
/// Far more files than CRIU writes for the most processes that fit into a machine.
const MAX_FILES: usize = 1_000_000;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why an image may not be restored.
#[derive(Debug, thiserror::Error)]
pub enum NotAllowed {
    /// It is not below one of the directories that the settings name.
    #[error(
        "the image {image} is not below a directory from which images may be restored \
         (restore.images: {})", allowed.iter().map(|path| path.display().to_string())
            .collect::<Vec<_>>().join(", ")
    )]
    Elsewhere {
        /// The image directory, without links.
        image: PathBuf,
        /// The directories.
        allowed: Vec<PathBuf>,
    },
    /// Somebody else than root may have written it.
    #[error("{path} belongs to user {uid} and has mode {mode:o}: others than root may write it")]
    NotRoots {
        /// A file or directory of the image, or above it.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// It is neither a file nor a directory.
    #[error("{path} is neither a file nor a directory, and no image has such")]
    OtherFile {
        /// The path.
        path: PathBuf,
    },
    /// It refers to too many earlier images, or has too many files.
    #[error("{path} is part of too many images, or of one with too many files")]
    TooMuch {
        /// A path of the image.
        path: PathBuf,
    },
    /// It cannot be looked at.
    #[error("cannot look at {path}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

/// Looks at an image, and at those that it refers to, unless the settings allow all (`allowed` is
/// empty). What only root can write does not change after this.
///
/// # Errors
/// [`NotAllowed`].
pub(crate) fn admit(allowed: &[PathBuf], image: &Path) -> Result<(), NotAllowed> {
    if allowed.is_empty() {
        return Ok(());
    }
    let mut next = Some(image.to_owned());
    for _ in 0..MAX_PARENTS {
        let Some(image) = next else {
            return Ok(());
        };
        next = admit_one(allowed, &image)?;
    }
    Err(NotAllowed::TooMuch {
        path: image.to_owned(),
    })
}

/// Returns the image that this one refers to.
fn admit_one(allowed: &[PathBuf], image: &Path) -> Result<Option<PathBuf>, NotAllowed> {
    let image = fs::canonicalize(image).map_err(io_error(image))?;
    let mut below = allowed
        .iter()
        .filter_map(|allowed| fs::canonicalize(allowed).ok());
    if !below.any(|allowed| image.starts_with(allowed)) {
        return Err(NotAllowed::Elsewhere {
            image,
            allowed: allowed.to_vec(),
        });
    }
    for directory in image.ancestors() {
        let found = directory.symlink_metadata().map_err(io_error(directory))?;
        refuse_others(directory, &found)?;
    }
    let mut parent = None;
    let entries = fs::read_dir(&image).map_err(io_error(&image))?;
    for (number, entry) in entries.enumerate() {
        let path = entry.map_err(io_error(&image))?.path();
        if number >= MAX_FILES {
            return Err(NotAllowed::TooMuch { path });
        }
        let found = path.symlink_metadata().map_err(io_error(&path))?;
        if found.is_symlink() && path.file_name().is_some_and(|name| name == PARENT) {
            parent = Some(path);
        } else if found.is_file() || found.is_dir() {
            refuse_others(&path, &found)?;
        } else {
            return Err(NotAllowed::OtherFile { path });
        }
    }
    Ok(parent)
}

/// In a sticky directory nobody else can exchange what is root's.
fn refuse_others(path: &Path, found: &Metadata) -> Result<(), NotAllowed> {
    let is_sticky = found.is_dir() && found.mode() & STICKY != 0;
    if found.uid() == 0 && (is_sticky || found.mode() & WRITABLE_BY_OTHERS == 0) {
        return Ok(());
    }
    Err(NotAllowed::NotRoots {
        path: path.to_owned(),
        uid: found.uid(),
        mode: found.mode() & 0o7777,
    })
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> NotAllowed {
    let path = path.to_owned();
    |source| NotAllowed::Io { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// An image of root's with two files.
    fn image(directory: &Path, name: &str) -> PathBuf {
        let image = directory.join(name);
        fs::create_dir_all(image.join("parts")).unwrap();
        fs::write(image.join("inventory.img"), "").unwrap();
        image
    }

    #[test]
    fn an_image_of_roots_in_a_named_directory_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let named = [directory.path().join("images")];
        let image = image(&named[0], "one");
        admit(&[], Path::new("/nowhere")).unwrap();
        admit(&named, &image).unwrap();
        let link = directory.path().join("link");
        symlink(&image, &link).unwrap();
        admit(&named, &link).unwrap();
    }

    #[test]
    fn an_image_elsewhere_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let named = [directory.path().join("images")];
        let wanted = image(&named[0], "one");
        let elsewhere = image(&directory.path().join("images-2"), "one");
        let error = admit(&named, &elsewhere).unwrap_err();
        assert!(matches!(error, NotAllowed::Elsewhere { .. }), "{error}");
        symlink("../../images-2/one", wanted.join("parent")).unwrap();
        let error = admit(&named, &wanted).unwrap_err();
        assert!(matches!(error, NotAllowed::Elsewhere { .. }), "{error}");
        fs::remove_file(wanted.join("parent")).unwrap();
        symlink(".", wanted.join("parent")).unwrap();
        let error = admit(&named, &wanted).unwrap_err();
        assert!(matches!(error, NotAllowed::TooMuch { .. }), "{error}");
    }

    #[test]
    fn what_others_than_root_may_write_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let named = [directory.path().join("images")];
        let image = image(&named[0], "one");
        for path in [
            &named[0],
            &image,
            &image.join("parts"),
            &image.join("inventory.img"),
        ] {
            let before = path.metadata().unwrap().permissions();
            for mode in [0o775, 0o757] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                let error = admit(&named, &image).unwrap_err();
                assert!(matches!(error, NotAllowed::NotRoots { .. }), "{error}");
            }
            fs::set_permissions(path, before).unwrap();
            chown(path, Some(1000), None).unwrap();
            let error = admit(&named, &image).unwrap_err();
            assert!(matches!(error, NotAllowed::NotRoots { .. }), "{error}");
            chown(path, Some(0), None).unwrap();
        }
        admit(&named, &image).unwrap();
        symlink("/etc/passwd", image.join("core-1.img")).unwrap();
        let error = admit(&named, &image).unwrap_err();
        assert!(matches!(error, NotAllowed::OtherFile { .. }), "{error}");
    }
}
