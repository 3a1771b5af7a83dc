//! Images whose contents are damaged: no process runs with them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::contents::Contents;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::Index;

use super::started;

/// Exists if the low-level runtime was called for a restore.
const BEGUN: &str = "/run/restore-begun";

/// A container that was half restored is ended before its GPU is unlocked, and the image is named.
#[test]
fn in_the_image_itself() -> Result<()> {
    is_not_restored(HostKind::trixie()?, Contents::InImage)
}

#[test]
fn on_disk() -> Result<()> {
    is_not_restored(HostKind::sid_v2()?, Contents::OnDisk)
}

/// The contents are verified before CRIU runs: no task of the container has run.
#[test]
fn in_memory() -> Result<()> {
    is_not_restored(HostKind::trixie()?, Contents::InMemory)
}

fn is_not_restored(kind: HostKind, place: Contents) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let holder = started(stasis)?;
    holder
        .bundle
        .before("restore", &format!("touch {BEGUN}"), place.setting())?;
    holder.bundle.checkpoint("image", &[])?;
    let inventory = stasis.inventory()?;
    let (pack, last) = last_chunk(stasis, &holder, place)?;
    let whole = fs::read(&pack)?;
    for damaged in [last, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[damaged] ^= 1;
        // The pack is written in place: its pages are mapped, and it keeps its inode number.
        fs::write(&pack, bytes)?;
        refused(stasis, &holder, place).with_context(|| format!("byte {damaged}"))?;
        assert_eq!(stasis.inventory()?, inventory);
    }
    fs::write(&pack, whole)?;
    stasis.inject("unlock job slow:1 1")?;
    holder.bundle.restore("image")?;
    ensure!(stasis.driver_is_called()? && stasis.path(BEGUN).exists());
    holder.goes_on()?;
    holder.end()
}

fn refused(stasis: &StasisHost, holder: &MemoryContainer<'_>, place: Contents) -> Result<()> {
    stasis.run(&["rm", "-f", BEGUN])?;
    // This order stays if no process is unlocked.
    stasis.inject("unlock job slow:1 1")?;
    let message = holder.bundle.restore_fails("image")?;
    assert_contains(&message, &["[image-damaged]"]);
    ensure!(!stasis.driver_is_called()?, "it was unlocked");
    stasis.inject("")?;
    if place == Contents::InMemory {
        ensure!(!stasis.path(BEGUN).exists(), "tasks have run");
    }
    stasis.no_criu()?;
    let left = holder.processes()?;
    ensure!(left.is_empty(), "{left:?} are left");
    stasis.nothing_to_put_right()
}

/// Returns a pack, and the offset of a byte of the last chunk that is stored in it.
fn last_chunk(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    place: Contents,
) -> Result<(PathBuf, usize)> {
    let image = holder.bundle.image_path("image");
    let index = Index::read(&image)?.context("no index")?;
    let chunks = index.areas().flat_map(|area| &area.chunks);
    let stored = chunks.last().context("nothing is stored")?.place;
    let pack = index.packs[usize::try_from(stored.pack)?].file_name();
    let id = index.image_id.to_string();
    let directory = match place.directory() {
        Some(apart) => stasis.path(apart).join(id),
        None => image,
    };
    Ok((directory.join(pack), usize::try_from(stored.offset)? + 5000))
}
