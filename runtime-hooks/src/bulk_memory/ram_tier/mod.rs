//! The tier `ram`: a tmpfs of huge pages below the state directory, mounted on first use.
//!
//! Its files outlive operations, but not a reboot. Stores that are also on disk are evicted when a
//! new one needs room, and when a container needs the host's memory.

mod room;

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
use crate::container::host_memory::{available, needed_for};
use crate::context::Context;
use crate::host::file_lock::lock_soon;
use crate::ledger::Reservation;
use crate::ledger::amounts::{Amounts, Resource, Short};
use crate::operation::timeline::Timeline;

pub(crate) use room::{GpuContentsIn, Stored};
use room::{no_room, reserve, wanted};

/// Chooses the tier: the settings' tier, or disk if the RAM tier has no room. Nobody is waited for.
pub(crate) fn choose(
    context: &Context,
    reservation: &Reservation,
    stores: &Stores,
    stored: Stored<'_>,
    timeline: &mut Timeline<'_>,
) -> Tier {
    match context.settings.bulk_memory.tier {
        MemoryTier::Portable => return Tier::Portable,
        MemoryTier::Disk => return Tier::Disk,
        MemoryTier::Ram => {}
    }
    match make_room(context, reservation, stores, stored, timeline) {
        Ok(()) => Tier::Ram,
        Err(why) => {
            timeline.note(format!("bulk memory goes to disk: {why}"));
            Tier::Disk
        }
    }
}

/// Makes room in the tier, and reserves it.
///
/// # Errors
/// Why there is none.
pub(crate) fn make_room(
    context: &Context,
    reservation: &Reservation,
    stores: &Stores,
    stored: Stored<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<(), String> {
    let percent = context.settings.bulk_memory.ram_limit_percent;
    let earlier = stores::newest_of(&stores.ram, stored.container.id(), &context.root);
    let wanted = wanted(stored);
    let room = mount_once(stores, percent).and_then(|()| {
        let look = || free_and_available(&stores.ram);
        let earlier = earlier.as_deref();
        evict_for(stores, earlier, || reserve(reservation, &wanted, look))
    });
    let Evicted { notes, short } =
        room.map_err(|error| format!("{}: {error}", stores.ram.display()))?;
    for note in notes {
        timeline.note(note);
    }
    short.map_or(Ok(()), |short| Err(no_room(&short)))
}

fn free_and_available(directory: &Path) -> io::Result<Amounts> {
    let amounts = [
        (Resource::RamTier, free(directory)?),
        (Resource::HostMemory, available()?),
    ];
    Ok(amounts.into_iter().collect())
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
    // Without huge pages the tier works, but more slowly; before Linux 6.4 it may be swapped out.
    mount(&format!("{options},huge=always,noswap"))
        .or_else(|_| mount(&format!("{options},huge=always")))
        .or_else(|_| mount(&options))?;
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

/// What was evicted for room.
#[derive(Debug)]
struct Evicted {
    /// One for each store.
    notes: Vec<String>,
    /// There is too little all the same.
    short: Option<Box<Short>>,
}

/// Evicts stores that are also on disk, the oldest first, until `reserve` finds nothing short.
/// Keeps `earlier`, since the new store reuses parts of it.
///
/// # Errors
/// The I/O error.
fn evict_for(
    stores: &Stores,
    earlier: Option<&Path>,
    reserve: impl Fn() -> io::Result<Option<Box<Short>>>,
) -> io::Result<Evicted> {
    let mut notes = Vec::new();
    let all = stores::all_in(&stores.ram).map_err(io::Error::other)?;
    let mut all = all.into_iter();
    loop {
        let short = reserve()?;
        if short.is_none() {
            return Ok(Evicted { notes, short });
        }
        let is_durable = |store: &stores::Store| {
            stores.is_on_disk(store.stored.image_id)
                && earlier != Some(store.stored.directory.as_path())
        };
        let Some(oldest) = all.find(is_durable) else {
            return Ok(Evicted { notes, short });
        };
        let removed = in_use::remove(&oldest.stored.directory).map_err(io::Error::other)?;
        if removed == Removed::InUse {
            continue;
        }
        notes.push(format!(
            "bulk memory {} is now only on disk",
            oldest.stored.image_id
        ));
    }
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
    use super::room::MARGIN;
    use super::*;
    use crate::bulk_memory::origin::tests::origin;
    use crate::bulk_memory::stores::tests::store;

    /// So much in the tier, and with it on the host, which needs more for the processes.
    fn both(tier: u64, processes: u64) -> Vec<(Resource, u64)> {
        let host = tier.saturating_add(processes);
        vec![(Resource::RamTier, tier), (Resource::HostMemory, host)]
    }

    fn amounts(free: u64, available: u64) -> Amounts {
        let amounts = [(Resource::RamTier, free), (Resource::HostMemory, available)];
        amounts.into_iter().collect()
    }

    #[test]
    fn the_host_needs_the_memory_beside_the_tier() {
        let directory = tempfile::tempdir().unwrap();
        let reservation = Reservation::new(directory.path(), "c1");
        let other = Reservation::new(directory.path(), "c2");
        let gib = |gib: u64| gib << 30;
        let short = |of: &Reservation, wanted: u64, free, available| {
            let wanted = both(wanted + MARGIN, 0).into_iter().collect();
            let short = reserve(of, &wanted, || Ok(amounts(free, available))).unwrap();
            short.map(|short| short.resource)
        };
        assert_eq!(short(&reservation, gib(8), gib(9), gib(9)), None);
        // Twice the memory, and two checkpoints at once.
        assert_eq!(
            short(&other, gib(8), gib(32), gib(16)),
            Some(Resource::HostMemory)
        );
        assert_eq!(
            short(&other, gib(8), gib(16), gib(32)),
            Some(Resource::RamTier)
        );
        reservation.release();
        assert_eq!(short(&other, gib(8), gib(16), gib(16)), None);
        assert_eq!(
            short(&other, gib(8), gib(16), gib(8)),
            Some(Resource::HostMemory)
        );
    }

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
        let reservation = Reservation::new(directory.path(), "c1");
        let evict = |wanted: u64, available, earlier| {
            let look = || Ok(amounts(u64::MAX, available));
            let wanted = both(wanted + MARGIN, 0).into_iter().collect();
            evict_for(&stores, earlier, || reserve(&reservation, &wanted, look)).unwrap()
        };
        let enough = evict(0, u64::MAX, None);
        assert!(enough.short.is_none() && enough.notes.is_empty());
        evict_for_host(&stores, 0);
        assert!(durable.exists());
        // More than there is: every store that may be evicted is.
        let short = evict(1 << 40, 1 << 30, Some(&*earlier));
        assert_eq!(short.short.unwrap().resource, Resource::HostMemory);
        assert_eq!(short.notes.len(), 1);
        assert!(only_in_ram.exists() && earlier.exists() && !durable.exists());
        evict_for_host(&stores, u64::MAX);
        assert!(only_in_ram.exists() && !earlier.exists());
        assert!(!is_mounted(&stores.ram).unwrap());
        assert!(!is_mounted(&directory.path().join("missing")).unwrap());
    }
}
