//! Marks our files in memory, independent of their names.
//!
//! Any process can give a file the name of one of ours. Attributes of the class "trusted" can be
//! set only with `CAP_SYS_ADMIN` in the machine's own user namespace: a container has it in no
//! namespace that it can make (xattr(7)).

use std::fs::File;
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;

const NAME: &str = "trusted.stasis";
const VALUE: &[u8] = b"gpu-contents";

/// Marks a file before a process gets it.
///
/// # Errors
/// Errors of fsetxattr(2): the file system has no such attributes, or may not be written to.
pub fn mark(file: &File) -> io::Result<()> {
    if is_marked(file)? {
        return Ok(());
    }
    Ok(fsetxattr(file, NAME, VALUE, XattrFlags::empty())?)
}

/// Returns whether a file was marked.
pub fn is_marked(file: &File) -> io::Result<bool> {
    let mut value = [0; VALUE.len()];
    match fgetxattr(file, NAME, &mut value) {
        Ok(length) => Ok(value[..length] == *VALUE),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_ours_once_it_was_marked() {
        let file = crate::memory_file::create(1).unwrap();
        assert!(!is_marked(&file).unwrap());
        mark(&file).unwrap();
        mark(&file).unwrap();
        assert!(is_marked(&file).unwrap());
        // An earlier mark that says something else.
        for other in [&b"gpu"[..], b"gpu-contents and more", b""] {
            fsetxattr(&file, NAME, other, XattrFlags::empty()).unwrap();
            assert!(!is_marked(&file).unwrap());
        }
    }

    #[test]
    fn a_file_that_knows_no_attributes_is_not_ours() {
        let file = File::open("/proc/self/maps").unwrap();
        assert!(!is_marked(&file).unwrap());
        assert!(mark(&file).is_err());
    }
}
