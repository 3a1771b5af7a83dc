//! The tier `ram`: a tmpfs of huge pages below the state directory, mounted on first use.
//!
//! Its files outlive operations, but not a reboot. Stores that are also on disk are evicted when a
//! new one needs room, and when a container needs the host's memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use rustix::fs::statvfs;
use stasis_config::MemoryTier;
use stasis_memory_store::Tier;

use crate::bulk_memory::in_use::{self, Removed};
use crate::bulk_memory::stores::{self, Stores};
use crate::container::Container;
use crate::container::host_memory::{available, needed_for};
use crate::context::Context;
use crate::host::deadline::lock_soon;
use crate::operation::estimate::anonymous_of;
use crate::operation::timeline::Timeline;

/// The store's page tables, its index, and the padding to huge pages.
const MARGIN: u64 = 128 << 20;

/// Chooses the tier: the settings' tier, or disk if the RAM tier has no room.
pub(crate) fn choose(
    context: &Context,
    stores: &Stores,
    container: &Container,
    timeline: &mut Timeline<'_>,
) -> Tier {
    match context.settings.bulk_memory.tier {
        MemoryTier::Portable => return Tier::Portable,
        MemoryTier::Disk => return Tier::Disk,
        MemoryTier::Ram => {}
    }
    let percent = context.settings.bulk_memory.ram_limit_percent;
    let earlier = stores::newest_of(&stores.ram, container.id(), &context.root);
    let room = mount_once(stores, percent)
        .and_then(|()| anonymous_of(container))
        .and_then(|bytes| evict_for(stores, bytes, earlier.as_deref()));
    let why = match room {
        Ok(Some(dropped)) => {
            for note in dropped {
                timeline.note(note);
            }
            return Tier::Ram;
        }
        Ok(None) => "there is no room for it in memory (bulk_memory.ram_limit_percent)".to_owned(),
        Err(error) => format!("{}: {error}", stores.ram.display()),
    };
    timeline.note(format!("bulk memory goes to disk: {why}"));
    Tier::Disk
}

/// Mounts the tmpfs, if it is not mounted, with at most `percent` of the machine's memory.
///
/// # Errors
/// The I/O error.
pub(crate) fn mount_once(stores: &Stores, percent: u8) -> io::Result<()> {
    let directory = &stores.ram;
    stores::prepare(directory)?;
    // Another operation may mount it at the same time.
    let gate = File::open(directory.parent().unwrap_or(directory))?;
    lock_soon(&gate)?;
    if is_mounted(directory)? {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mount = |options: &str| {
        let source = Some("stasis-memory");
        mount(source, directory, Some("tmpfs"), flags, Some(options))
    };
    let options = format!("size={percent}%,mode=0700");
    // Without huge pages the tier works, but more slowly.
    mount(&format!("{options},huge=always")).or_else(|_| mount(&options))?;
    Ok(())
}

/// Whether a file system is mounted on the directory.
///
/// # Errors
/// The I/O error.
pub(crate) fn is_mounted(directory: &Path) -> io::Result<bool> {
    let own = match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?.dev(),
    };
    let above = fs::metadata(directory.parent().unwrap_or(directory))?.dev();
    Ok(own != above)
}

/// Evicts stores that are also on disk, the oldest first, until `bytes` fit, and returns a note for
/// each of them. `None` if the room cannot be made. Keeps `earlier`, since the new store reuses
/// parts of it.
///
/// # Errors
/// The I/O error.
pub(crate) fn evict_for(
    stores: &Stores,
    bytes: u64,
    earlier: Option<&Path>,
) -> io::Result<Option<Vec<String>>> {
    let needed = bytes.saturating_add(MARGIN);
    let mut evicted = Vec::new();
    let all = stores::all_in(&stores.ram).map_err(io::Error::other)?;
    let mut all = all.into_iter();
    while free(&stores.ram)? < needed {
        let is_durable = |store: &stores::Store| {
            stores.is_on_disk(store.stored.image_id)
                && earlier != Some(store.stored.directory.as_path())
        };
        let Some(oldest) = all.find(is_durable) else {
            return Ok(None);
        };
        let removed = in_use::remove(&oldest.stored.directory).map_err(io::Error::other)?;
        if removed == Removed::InUse {
            continue;
        }
        evicted.push(format!(
            "bulk memory {} is now only on disk",
            oldest.stored.image_id
        ));
    }
    Ok(Some(evicted))
}

/// Evicts stores that are also on disk, the oldest first, until the host has memory for so many
/// bytes of a container, or none is left. Whoever needs the memory finds out which.
pub(crate) fn evict_for_host(stores: &Stores, bytes: u64) {
    let needed = needed_for(bytes);
    let is_short = || available().is_ok_and(|available| available < needed);
    for store in stores::all_in(&stores.ram).unwrap_or_default() {
        if !is_short() {
            return;
        }
        if stores.is_on_disk(store.stored.image_id) {
            let _ = in_use::remove(&store.stored.directory);
        }
    }
}

fn free(directory: &Path) -> io::Result<u64> {
    let status = statvfs(directory)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_memory::origin::tests::origin;
    use crate::bulk_memory::stores::tests::store;

    #[test]
    fn only_what_is_on_disk_too_is_evicted() {
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
        assert_eq!(evict_for(&stores, 0, None).unwrap(), Some(Vec::new()));
        evict_for_host(&stores, 0);
        assert!(durable.exists());
        // More than there can be: every store that may be evicted is.
        assert_eq!(evict_for(&stores, u64::MAX, Some(&earlier)).unwrap(), None);
        assert!(only_in_ram.exists() && earlier.exists() && !durable.exists());
        evict_for_host(&stores, u64::MAX);
        assert!(only_in_ram.exists() && !earlier.exists());
        assert!(!is_mounted(&stores.ram).unwrap());
        assert!(!is_mounted(&directory.path().join("missing")).unwrap());
    }
}
