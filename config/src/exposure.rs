//! Checks whether users other than root could change a file that root is about to run.

use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The kernel's limit of links in a path (path_resolution(7)).
const MAX_LINKS: usize = 40;
const STICKY: u32 = 0o1000;

/// A file, or a directory or link on the way to it, that users other than root may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    /// The users who may change it.
    pub to: Others,
    /// The path.
    pub path: PathBuf,
    /// The owner.
    pub uid: u32,
    /// The permissions.
    pub mode: u32,
}

/// Users other than root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Others {
    /// The file's group, or an owner other than root. Some distributions have such directories.
    Some,
    /// Every user of the machine.
    All,
}

/// Returns the most exposed step on the way to a file, links included; `None` if root alone can
/// change the file and the way to it.
///
/// # Errors
/// The file cannot be found; the path is not absolute.
pub fn exposed(path: &Path) -> io::Result<Option<Exposed>> {
    if !path.is_absolute() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut most: Option<Exposed> = None;
    let mut look = |path: &Path| -> io::Result<Metadata> {
        let found = path.symlink_metadata()?;
        let one = Exposed::of(path, &found);
        if one.as_ref().map(|one| one.to) > most.as_ref().map(|most| most.to) {
            most = one;
        }
        Ok(found)
    };
    let (mut at, mut rest, mut links) = (PathBuf::from("/"), steps(path), 0);
    look(&at)?;
    while let Some(step) = rest.pop() {
        match Path::new(&step).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                if !look(&next)?.is_symlink() {
                    at = next;
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other("too many links"));
                }
                rest.extend(steps(&next.read_link()?));
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok(most)
}

/// Returns the steps of a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().rev();
    steps.map(|step| step.as_os_str().to_owned()).collect()
}

impl Exposed {
    fn of(path: &Path, found: &Metadata) -> Option<Self> {
        let mode = found.mode() & 0o7777;
        // Links have no contents to write, and in a sticky directory other users cannot replace
        // root's files.
        let is_sticky = found.is_dir() && mode & STICKY != 0;
        let writable = if found.is_symlink() || is_sticky {
            0
        } else {
            mode & 0o022
        };
        let to = match (writable & 0o002 != 0, writable != 0 || found.uid() != 0) {
            (true, _) => Others::All,
            (false, true) => Others::Some,
            (false, false) => return None,
        };
        Some(Self {
            to,
            path: path.to_owned(),
            uid: found.uid(),
            mode,
        })
    }
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            to,
            path,
            uid,
            mode,
        } = self;
        let who = match to {
            Others::Some => "others than root",
            Others::All => "all users",
        };
        let path = path.display();
        write!(
            f,
            "{who} may change {path}: it belongs to uid {uid} and has mode {mode:04o}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn each_step_of_the_way_counts() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a");
        let (file, link) = (directory.join("runc"), place.path().join("link"));
        fs::create_dir(&directory).unwrap();
        fs::write(&file, "").unwrap();
        symlink("a/../a/runc", &link).unwrap();
        let of = |path: &Path| exposed(path).unwrap();
        assert_eq!((of(&file), of(&link)), (None, None), "/tmp is sticky");
        for (path, mode) in [(&directory, 0o755), (&file, 0o755)] {
            for (open, to) in [(0o777, Others::All), (0o775, Others::Some)] {
                set_mode(path, open);
                for way in [&file, &link] {
                    let found = of(way).unwrap();
                    assert_eq!((found.to, &found.path), (to, path), "{found}");
                }
            }
            set_mode(path, mode);
        }
        set_mode(&directory, 0o1777);
        assert_eq!(of(&file), None);
        chown(&file, Some(1000), None).unwrap();
        assert_eq!(of(&link).unwrap().to, Others::Some);
        set_mode(&directory, 0o777);
        assert_eq!(of(&link).unwrap().to, Others::All, "the worst is told");
        assert!(exposed(Path::new("runc")).is_err());
        symlink("round", place.path().join("round")).unwrap();
        assert!(exposed(&place.path().join("round")).is_err());
    }
}
