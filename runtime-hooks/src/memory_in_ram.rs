//! The tier `ram`: a tmpfs of huge pages below the state directory, mounted when it is first needed.
//!
//! Its files outlive operations and not the machine's boot. What is on disk by now is dropped for what needs room.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use rustix::fs::{FlockOperation, flock, statvfs};

use crate::memory_stores::{self, Stores};

/// The page tables of the store, its index, and what rounding to huge pages adds.
const MARGIN: u64 = 128 << 20;

/// Mounts it, if it is not there, for at most this part of the machine's memory.
///
/// # Errors
/// What the kernel said.
pub(crate) fn mount_once(stores: &Stores, percent: u8) -> io::Result<()> {
    let directory = &stores.ram;
    memory_stores::prepare(directory)?;
    // Another operation may be about to do the same.
    let gate = File::open(directory.parent().unwrap_or(directory))?;
    flock(&gate, FlockOperation::LockExclusive)?;
    if is_mounted(directory)? {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mount = |options: &str| {
        let source = Some("stasis-memory");
        mount(source, directory, Some("tmpfs"), flags, Some(options))
    };
    let options = format!("size={percent}%,mode=0700");
    // A kernel without huge pages is only slower.
    mount(&format!("{options},huge=always")).or_else(|_| mount(&options))?;
    Ok(())
}

/// Whether it is a file system of its own.
///
/// # Errors
/// What the kernel said.
pub(crate) fn is_mounted(directory: &Path) -> io::Result<bool> {
    let own = match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?.dev(),
    };
    let above = fs::metadata(directory.parent().unwrap_or(directory))?.dev();
    Ok(own != above)
}

/// Makes room for so many bytes: drops what is on disk, too, the oldest first. `None` if there is no such room. What was
/// dropped is said; `earlier` is not dropped, since the new one is to have parts of it.
///
/// # Errors
/// What the kernel said.
pub(crate) fn make_room(
    stores: &Stores,
    bytes: u64,
    earlier: Option<&Path>,
) -> io::Result<Option<Vec<String>>> {
    let needed = bytes.saturating_add(MARGIN);
    let mut dropped = Vec::new();
    let all = memory_stores::all_in(&stores.ram).map_err(io::Error::other)?;
    let mut all = all.into_iter();
    while free(&stores.ram)? < needed {
        let is_durable = |store: &memory_stores::Store| {
            stores.disk.join(store.stored.image_id.to_string()).is_dir()
                && earlier != Some(store.stored.directory.as_path())
        };
        let Some(oldest) = all.find(is_durable) else {
            return Ok(None);
        };
        memory_stores::remove(&oldest.stored.directory).map_err(io::Error::other)?;
        dropped.push(format!(
            "bulk memory {} is on disk alone now",
            oldest.stored.image_id
        ));
    }
    Ok(Some(dropped))
}

fn free(directory: &Path) -> io::Result<u64> {
    let status = statvfs(directory)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_stores::tests::{origin, store};

    #[test]
    fn only_what_is_on_disk_too_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let stores = Stores {
            disk: directory.path().join("disk"),
            ram: directory.path().join("ram"),
        };
        for parent in [&stores.disk, &stores.ram] {
            fs::create_dir(parent).unwrap();
        }
        let only_in_ram = store(&stores.ram, 1, &origin("c1", 1));
        let durable = store(&stores.ram, 2, &origin("c1", 2));
        let earlier = store(&stores.ram, 3, &origin("c1", 3));
        for id in [2, 3] {
            store(&stores.disk, id, &origin("c1", id.try_into().unwrap()));
        }
        assert_eq!(make_room(&stores, 0, None).unwrap(), Some(Vec::new()));
        // More than there can be: all that may go goes.
        assert_eq!(make_room(&stores, u64::MAX, Some(&earlier)).unwrap(), None);
        assert!(only_in_ram.exists() && earlier.exists() && !durable.exists());
        assert!(!is_mounted(&stores.ram).unwrap());
        assert!(!is_mounted(&directory.path().join("missing")).unwrap());
    }
}
