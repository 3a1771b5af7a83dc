//! Loop devices: a file as a block device, until its last mount is gone.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;

/// `LOOP_CTL_GET_FREE` (linux/loop.h).
const GET_FREE: libc::c_ulong = 0x4c82;
/// `LOOP_CONFIGURE` (linux/loop.h), in Linux 5.8 and newer.
const CONFIGURE: libc::c_ulong = 0x4c0a;
/// `LO_FLAGS_READ_ONLY`.
const READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: the device releases the file after its last use.
const AUTOCLEAR: u32 = 4;
/// Other processes take free devices, too.
const TRIES: u32 = 100;

/// Whether the file may be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No.
    ReadOnly,
    /// Yes.
    ReadWrite,
}

/// A loop device; it releases its file when this is dropped, unless it is mounted by then.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

/// `struct loop_config` (linux/loop.h).
#[repr(C)]
struct Config {
    file: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// `struct loop_info64` (linux/loop.h).
#[repr(C)]
struct Info {
    /// Device, inode, number, offset and size limit.
    of_file: [u64; 5],
    /// Number, and two fields of the removed encryption.
    of_device: [u32; 3],
    flags: u32,
    names_and_key: [u8; 160],
    init: [u64; 2],
}

impl LoopDevice {
    /// Attaches a file to a free loop device.
    pub fn of(file: &Path, access: Access) -> io::Result<Self> {
        let open = |path: &Path| {
            let writes = access == Access::ReadWrite;
            File::options().read(true).write(writes).open(path)
        };
        let file = open(file)?;
        let control = Path::new("/dev/loop-control");
        let control = File::options().read(true).write(true).open(control)?;
        for _ in 0..TRIES {
            // SAFETY: this call has no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
            let path = PathBuf::from(format!("/dev/loop{}", Errno::result(number)?));
            let device = open(&path)?;
            match configure(&device, &file, access) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        _open: device,
                    });
                }
                Err(Errno::EBUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EBUSY.into())
    }

    /// Returns the path of the device node.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn configure(device: &File, file: &File, access: Access) -> Result<(), Errno> {
    let config = Config {
        file: u32::try_from(file.as_raw_fd()).map_err(|_| Errno::EBADF)?,
        block_size: 0,
        info: Info {
            of_file: [0; 5],
            of_device: [0; 3],
            flags: match access {
                Access::ReadOnly => AUTOCLEAR | READ_ONLY,
                Access::ReadWrite => AUTOCLEAR,
            },
            names_and_key: [0; 160],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads one `struct loop_config`, which lives until it returns, and writes
    // nothing.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_the_kernels() {
        assert_eq!((size_of::<Info>(), size_of::<Config>()), (232, 304));
        assert_eq!(std::mem::offset_of!(Info, flags), 52);
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error() {
        let error = LoopDevice::of(Path::new("/nonexistent"), Access::ReadOnly).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
