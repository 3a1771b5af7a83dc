//! The directory that holds an operation's files, below the state directory.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{self, Path, PathBuf};

use stasis_linux::file;

use crate::operation::lock;

/// The directory of all, below the state directory.
const CONTAINERS: &str = "containers";

/// The directory of the container `id` that the low-level runtime keeps below `root`.
pub fn directory_of(state_dir: &Path, root: &Path, id: &str) -> PathBuf {
    let root = name_of(&canonical(root));
    state_dir.join(CONTAINERS).join(root).join(id)
}

/// The state directory of such a directory.
pub(super) fn state_dir_of(directory: &Path) -> &Path {
    directory.ancestors().nth(3).unwrap_or(directory)
}

/// The container of such a directory.
pub fn id_of(directory: &Path) -> &str {
    let name = directory.file_name().and_then(OsStr::to_str);
    name.unwrap_or_default()
}

/// The root of the low-level runtime of such a directory.
pub fn root_of(directory: &Path) -> PathBuf {
    let name = directory.parent().and_then(Path::file_name);
    path_of(name.unwrap_or_default())
}

/// The directories of all containers, by root.
pub fn directories(state_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for root in entries(&state_dir.join(CONTAINERS))? {
        found.extend(entries(&root)?);
    }
    Ok(found)
}

/// Removes a directory whose lock the caller holds, the lock last: from then on another operation
/// may lock a new one in its place, and make files there, which stay.
pub(super) fn remove(directory: &Path) {
    let lock = directory.join(lock::NAME);
    for entry in entries(directory).unwrap_or_default() {
        if entry != lock {
            // Files left behind only make the next operation query the driver once more.
            let _ = fs::remove_file(&entry).or_else(|_| fs::remove_dir_all(&entry));
        }
    }
    let _ = fs::remove_file(lock);
    let _ = fs::remove_dir(directory);
}

/// The entries of a directory; none if there is no such directory.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = file::entries(directory)?;
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.sort_unstable();
    Ok(paths)
}

/// Resolves a root as the kernel does: Docker's `/var/run/docker/...` is `/run/docker/...`, and
/// runc takes relative roots. Components that do not exist yet, as before the first restore, stay
/// as they are written.
fn canonical(root: &Path) -> PathBuf {
    let root = path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let known = root.ancestors().find_map(|above| {
        let rest = root.strip_prefix(above).ok()?;
        Some((fs::canonicalize(above).ok()?, rest))
    });
    match known {
        Some((above, rest)) => above.components().chain(rest.components()).collect(),
        None => root,
    }
}

/// Encodes an absolute path as one file name, which no other path has: '/' becomes '%', '~'
/// becomes "~0" and '%' becomes "~1".
fn name_of(path: &Path) -> OsString {
    let mut name = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' => name.push(b'%'),
            b'~' => name.extend(b"~0"),
            b'%' => name.extend(b"~1"),
            other => name.push(*other),
        }
    }
    OsString::from_vec(name)
}

/// The path of such a name.
fn path_of(name: &OsStr) -> PathBuf {
    let mut path = Vec::new();
    let mut bytes = name.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'%' => b'/',
            b'~' if bytes.next() == Some(&b'0') => b'~',
            b'~' => b'%',
            other => *other,
        });
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_tells_its_state_directory_and_container() {
        let directory = directory_of(Path::new("/run/stasis"), Path::new("/run/runc"), "c1");
        assert_eq!(state_dir_of(&directory), Path::new("/run/stasis"));
        assert_eq!(id_of(&directory), "c1");
    }

    #[test]
    fn no_two_roots_have_one_name() {
        assert_eq!(name_of(Path::new("/run/runc")), "%run%runc");
        assert_eq!(name_of(Path::new("/run/a%b~1")), "%run%a~1b~01");
        for path in ["/run/runc", "/run/a%b~1"] {
            assert_eq!(path_of(&name_of(Path::new(path))), Path::new(path));
        }
    }
}
