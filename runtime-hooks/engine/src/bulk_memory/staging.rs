//! Memory for contents: a directory of the settings that is on a tmpfs, or our own tmpfs of huge
//! pages below the state directory, mounted on first use, where contents are on their way to a
//! disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::statvfs;
use stasis_gpu::ledger::amounts::{Amounts, Resource, Short};
use stasis_gpu::ledger::{NotReserved, Reservation, WaitFor, WaitLimit};
use stasis_host::file_lock::lock_soon;
use stasis_linux::file;

use crate::bulk_memory::places::{self, Places};
use crate::container::host_memory::available;
use crate::context::Context;
use crate::operation::timeline::Timeline;

/// The store's page tables, its index, and the padding to huge pages.
const MARGIN: u64 = 128 << 20;

/// Returns the directory for contents of so many bytes; `None`: they go into the image, by the
/// settings, or since a tmpfs has no room. Does not wait.
pub(crate) fn choose(
    reservation: &Reservation,
    places: &Places,
    bytes: u64,
    timeline: &mut Timeline<'_>,
) -> Option<PathBuf> {
    let apart = places.apart.as_ref()?;
    if places::in_memory(apart)
        && let Err(why) = reserve_in(apart, reservation, bytes)
    {
        timeline.note(format!("GPU contents go into the image: {why}"));
        return None;
    }
    Some(apart.clone())
}

/// Mounts our tmpfs, and reserves room in it for contents of so many bytes.
///
/// # Errors
/// Why there is no room.
pub(crate) fn make_room(
    context: &Context,
    reservation: &Reservation,
    bytes: u64,
) -> Result<(), String> {
    let staging = Places::of(&context.settings).staging;
    let percent = context.settings.gpu_contents.staging_percent;
    mount_once(&staging, percent).map_err(|error| format!("{}: {error}", staging.display()))?;
    reserve_in(&staging, reservation, bytes)
}

/// Room on the host for the files is reserved already.
fn reserve_in(directory: &Path, reservation: &Reservation, bytes: u64) -> Result<(), String> {
    let wanted = Amounts::from_iter([(Resource::Contents, bytes.saturating_add(MARGIN))]);
    let look = || free_and_available(directory);
    let reserved = reservation.reserve(&wanted, WaitFor::Reservations, &WaitLimit::none(), look);
    reserved.map_err(|error| match error {
        NotReserved::Short(short) => no_room(&short),
        NotReserved::Unknown(error) | NotReserved::Ledger(error) => {
            format!("{}: {error}", directory.display())
        }
    })
}

fn no_room(short: &Short) -> String {
    format!(
        "there is no room for it in memory: {} has {} free{}, and {} MiB are needed",
        short.resource,
        short.free,
        short.reserved,
        short.wanted.div_ceil(1 << 20)
    )
}

fn free_and_available(directory: &Path) -> io::Result<Amounts> {
    let amounts = [
        (Resource::Contents, free(directory)?),
        (Resource::HostMemory, available()?),
    ];
    Ok(amounts.into_iter().collect())
}

/// Mounts the tmpfs, if it is not mounted, with at most `percent` of the machine's memory.
fn mount_once(directory: &Path, percent: u8) -> io::Result<()> {
    places::prepare(directory)?;
    // Another operation may mount it at the same time.
    let gate = File::open(directory.parent().unwrap_or(directory))?;
    lock_soon(&gate)?;
    if is_mounted(directory)? {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mount = |options: &str| {
        let source = Some("stasis-staging");
        mount(source, directory, Some("tmpfs"), flags, Some(options))
    };
    let options = format!("size={percent}%,mode=0700");
    // Without huge pages it works, but more slowly; before Linux 6.4 it may be swapped out.
    mount(&format!("{options},huge=always,noswap"))
        .or_else(|_| mount(&format!("{options},huge=always")))
        .or_else(|_| mount(&options))?;
    Ok(())
}

/// Whether a file system is mounted on the directory.
fn is_mounted(directory: &Path) -> io::Result<bool> {
    let Some(own) = file::if_exists(fs::metadata(directory))? else {
        return Ok(false);
    };
    let above = fs::metadata(directory.parent().unwrap_or(directory))?;
    Ok(own.dev() != above.dev())
}

fn free(directory: &Path) -> io::Result<u64> {
    let status = statvfs(directory)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_not_mounted() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_mounted(directory.path()).unwrap());
        assert!(!is_mounted(&directory.path().join("missing")).unwrap());
        assert!(is_mounted(Path::new("/proc")).unwrap());
    }
}
