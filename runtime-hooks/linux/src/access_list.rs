//! The right of one user to search a directory or to read a file, by an access control list
//! (acl(5)).

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, open};
use rustix::io::Errno;

use crate::file;

/// The attribute's name and layout: linux/posix_acl_xattr.h.
const NAME: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NOBODY: u32 = u32::MAX;
const EXECUTE: u16 = 1;
const READ: u16 = 4;
const RIGHTS: u32 = 7;
/// Room for many more entries than lists have in practice.
const MAX_BYTES: usize = 8 << 10;

/// An entry: tag, rights, and user or group.
type Entry = (u16, u16, u32);

/// Lets a user search a directory, and nothing else. Does nothing if all users may search it.
///
/// # Errors
/// An I/O error; `Unsupported` on a file system without such lists.
pub fn give_search(directory: &Path, uid: u32) -> io::Result<()> {
    let directory = open(
        directory,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    give(&File::from(directory), EXECUTE, uid)
}

/// Lets a user read a regular file, and nothing else. Keeps a file that all may read, and anything
/// but a regular file, as it is.
pub fn give_read(file: &Path, uid: u32) -> io::Result<()> {
    match file::open(file) {
        Ok(Some(file)) => give(&file, READ, uid),
        Ok(None) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(()),
        Err(error) => Err(error),
    }
}

fn give(file: &File, right: u16, uid: u32) -> io::Result<()> {
    let found = file.metadata()?;
    if found.mode() & u32::from(right) != 0 {
        return Ok(());
    }
    let mut value = vec![0; MAX_BYTES];
    let list = match fgetxattr(file, NAME, &mut value) {
        Ok(length) => parse(&value[..length]).ok_or(io::ErrorKind::InvalidData)?,
        Err(Errno::NODATA) => of_mode(&found),
        Err(error) => return Err(error.into()),
    };
    let list = with(right, list, uid);
    Ok(fsetxattr(file, NAME, &encode(&list), XattrFlags::empty())?)
}

/// Returns the entries that a file's mode stands for.
fn of_mode(found: &Metadata) -> Vec<Entry> {
    let rights = |shift| ((found.mode() >> shift) & RIGHTS) as u16;
    vec![
        (USER_OBJ, rights(6), NOBODY),
        (GROUP_OBJ, rights(3), NOBODY),
        (OTHER, rights(0), NOBODY),
    ]
}

fn with(right: u16, mut list: Vec<Entry>, uid: u32) -> Vec<Entry> {
    // The mask gets one more right. Entries of others keep those that it has left them.
    let mask = list.iter().find(|it| it.0 == MASK).map(|it| it.1);
    if let Some(mask) = mask.filter(|mask| mask & right == 0) {
        let limited = list.iter_mut();
        let limited = limited.filter(|it| matches!(it.0, USER | GROUP_OBJ | GROUP));
        limited.for_each(|it| it.1 &= mask);
    }
    if let Some(own) = list.iter_mut().find(|it| (it.0, it.2) == (USER, uid)) {
        own.1 |= right;
    } else {
        list.push((USER, right, uid));
    }
    // A new mask includes the rights of the owning group, which it limits, too.
    let group = list
        .iter()
        .find(|it| it.0 == GROUP_OBJ)
        .map_or(0, |it| it.1);
    match list.iter_mut().find(|it| it.0 == MASK) {
        Some(mask) => mask.1 |= right,
        None => list.push((MASK, group | right, NOBODY)),
    }
    list.sort_unstable_by_key(|it| (it.0, it.2));
    list
}

fn parse(value: &[u8]) -> Option<Vec<Entry>> {
    let (version, entries) = value.split_at_checked(4)?;
    if version != VERSION.to_le_bytes() {
        return None;
    }
    let entry = |bytes: &[u8]| {
        let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let id = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        Some((half(0)?, half(2)?, id))
    };
    entries.chunks(8).map(entry).collect()
}

fn encode(list: &[Entry]) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in list {
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// Whether a user finds a file in the directory.
    fn finds(uid: u32, directory: &Path) -> bool {
        let mut test = Command::new("test");
        test.arg("-e").arg(directory.join("file")).uid(uid).gid(uid);
        test.status().unwrap().success()
    }

    #[test]
    fn one_user_may_search_and_nobody_else() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
        let directory = place.path().join("image");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        for mode in [0o700, 0o740] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            for uid in [100_000, 200_000, 100_000] {
                give_search(&directory, uid).unwrap();
                assert!(finds(uid, &directory));
            }
            assert!(!finds(300_000, &directory));
            let mut list = Command::new("ls");
            list.arg(&directory).uid(100_000).gid(100_000);
            assert!(!list.output().unwrap().status.success());
        }
        fs::set_permissions(&directory, Permissions::from_mode(0o711)).unwrap();
        assert!(finds(300_000, &directory));
    }

    #[test]
    fn one_user_may_read_and_nobody_else() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let does = |uid: u32, program: &str| {
            let mut command = Command::new(program);
            let command = command.arg(&file).uid(uid).gid(uid);
            command.output().unwrap().status.success()
        };
        for mode in [0o600, 0o640] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            give_read(&file, 100_000).unwrap();
            assert!(does(100_000, "cat") && !does(200_000, "cat"));
        }
        assert!(
            !Command::new("test")
                .arg("-w")
                .arg(&file)
                .uid(100_000)
                .status()
                .unwrap()
                .success()
        );
        give_read(&place.path().join("nothing"), 100_000).unwrap();
        give_read(place.path(), 100_000).unwrap();
    }

    #[test]
    fn rights_that_a_mask_held_back_stay_held_back() {
        let list = vec![
            (USER_OBJ, 7, NOBODY),
            (USER, READ | EXECUTE, 1000),
            (GROUP_OBJ, READ | EXECUTE, NOBODY),
            (GROUP, EXECUTE, 50),
            (MASK, READ, NOBODY),
            (OTHER, 0, NOBODY),
        ];
        let expected = vec![
            (USER_OBJ, 7, NOBODY),
            (USER, READ, 1000),
            (USER, EXECUTE, 2000),
            (GROUP_OBJ, READ, NOBODY),
            (GROUP, 0, 50),
            (MASK, READ | EXECUTE, NOBODY),
            (OTHER, 0, NOBODY),
        ];
        assert_eq!(with(EXECUTE, list, 2000), expected);
    }

    #[test]
    fn a_directory_that_all_may_search_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
        give_search(place.path(), 100_000).unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut value = [0; 64];
        assert_eq!(fgetxattr(&directory, NAME, &mut value), Err(Errno::NODATA));
    }
}
