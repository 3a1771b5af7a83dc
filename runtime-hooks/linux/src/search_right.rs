//! The right of one user to search a directory, by an access control list (acl(5)).

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, open};
use rustix::io::Errno;

/// The attribute's name and layout: linux/posix_acl_xattr.h.
const NAME: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NOBODY: u32 = u32::MAX;
const EXECUTE: u16 = 1;
const RIGHTS: u32 = 7;
/// Many more entries than anybody makes.
const MAX_BYTES: usize = 8 << 10;

/// An entry: whose it is, the rights, and a user or group.
type Entry = (u16, u16, u32);

/// Lets a user search a directory, and nothing else. One that everybody may search is left alone.
///
/// # Errors
/// An I/O error; `Unsupported` on a file system without such lists.
pub fn give(directory: &Path, uid: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = File::from(open(directory, flags, Mode::empty())?);
    let found = directory.metadata()?;
    if found.mode() & u32::from(EXECUTE) != 0 {
        return Ok(());
    }
    let mut value = vec![0; MAX_BYTES];
    let list = match fgetxattr(&directory, NAME, &mut value) {
        Ok(length) => parse(&value[..length]).ok_or(io::ErrorKind::InvalidData)?,
        Err(Errno::NODATA) => of_mode(&found),
        Err(error) => return Err(error.into()),
    };
    let list = with_search(list, uid);
    Ok(fsetxattr(
        &directory,
        NAME,
        &encode(&list),
        XattrFlags::empty(),
    )?)
}

/// What the permissions alone say.
fn of_mode(found: &Metadata) -> Vec<Entry> {
    let rights = |shift| ((found.mode() >> shift) & RIGHTS) as u16;
    vec![
        (USER_OBJ, rights(6), NOBODY),
        (GROUP_OBJ, rights(3), NOBODY),
        (OTHER, rights(0), NOBODY),
    ]
}

fn with_search(mut list: Vec<Entry>, uid: u32) -> Vec<Entry> {
    if let Some(own) = list.iter_mut().find(|it| (it.0, it.2) == (USER, uid)) {
        own.1 |= EXECUTE;
    } else {
        list.push((USER, EXECUTE, uid));
    }
    // The mask limits the owning group, too: it gets nothing by this.
    let group = list
        .iter()
        .find(|it| it.0 == GROUP_OBJ)
        .map_or(0, |it| it.1);
    match list.iter_mut().find(|it| it.0 == MASK) {
        Some(mask) => mask.1 |= EXECUTE,
        None => list.push((MASK, group | EXECUTE, NOBODY)),
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
                give(&directory, uid).unwrap();
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
    fn a_directory_that_all_may_search_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
        give(place.path(), 100_000).unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut value = [0; 64];
        assert_eq!(fgetxattr(&directory, NAME, &mut value), Err(Errno::NODATA));
    }
}
