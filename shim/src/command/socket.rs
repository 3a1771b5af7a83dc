//! The socket of a shim: made by `start`, removed by `delete` if its shim was killed.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::umask;
use stasis_linux::directory::Directory;

use crate::error::{Error, Result};

/// The file in the bundle that keeps the address for containerd 1.6, which reads it after a
/// restart.
const ADDRESS: &str = "address";

/// Writes the address into the working directory, which is the bundle.
pub(super) fn write_address(address: &str) -> Result<()> {
    fs::write(ADDRESS, address).map_err(Error::cannot("write the file address"))
}

/// Listens at the address of a group's shim. `None` means that a shim serves the group already.
pub(super) fn listen(address: &str) -> Result<Option<UnixListener>> {
    let path = path_of(address);
    let failed = || Error::cannot(format!("listen at {}", path.display()));
    if let Some(directory) = path.parent() {
        // A user who can write into it could listen in our place.
        Directory::make(directory, 0o711).map_err(failed())?;
    }
    match bind(&path) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(&path).is_ok() {
                return Ok(None);
            }
            // A shim that was killed left the file.
            fs::remove_file(&path).map_err(failed())?;
            bind(&path).map(Some).map_err(failed())
        }
        Err(error) => Err(failed()(error)),
    }
}

/// Removes the socket of a shim that could not be started.
pub(super) fn remove(address: &str) {
    let _ = fs::remove_file(path_of(address));
}

/// Removes the socket of a shim that was killed, whose address is in the bundle.
pub(super) fn remove_dead(bundle: &Path) {
    let Ok(address) = fs::read_to_string(bundle.join(ADDRESS)) else {
        return;
    };
    let path = path_of(address.trim());
    // In a pod, a new shim may have been started meanwhile for another container.
    if UnixStream::connect(&path).is_err() {
        let _ = fs::remove_file(&path);
    }
}

fn path_of(address: &str) -> PathBuf {
    PathBuf::from(address.trim_start_matches("unix://"))
}

/// Only root may connect to a shim, from the beginning. No other thread makes files meanwhile:
/// `start` has one thread.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let before = umask(Mode::from_bits_retain(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    bound
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_socket_is_private_whatever_the_umask() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let before = umask(Mode::empty());
        let socket = bind(&path);
        let meanwhile = umask(before);
        socket.unwrap();
        assert_eq!(meanwhile, Mode::empty());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
