//! Images whose contents are damaged: nobody works with them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::Index;

use super::as_an_image::RAM;
use super::started;

const DISK: &str = "/var/lib/stasis/memory";
/// There if the low-level runtime was to restore something.
const BEGUN: &str = "/run/restore-begun";

/// A container that was half restored is ended before its GPU is unlocked, and the image is named.
#[test]
fn in_the_image_itself() -> Result<()> {
    is_not_restored(HostKind::trixie()?, "portable")
}

#[test]
fn on_disk() -> Result<()> {
    is_not_restored(HostKind::sid_v2()?, "disk")
}

/// They are verified before CRIU: no task of the container has run.
#[test]
fn in_memory() -> Result<()> {
    is_not_restored(HostKind::trixie()?, "ram")
}

fn is_not_restored(kind: HostKind, tier: &str) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    let settings = format!("bulk_memory.tier = \"{tier}\"\n");
    let holder = started(stasis)?;
    holder
        .bundle
        .before("restore", &format!("touch {BEGUN}"), &settings)?;
    holder.bundle.checkpoint("image", &[])?;
    let inventory = stasis.inventory()?;
    let (pack, place) = last_chunk(stasis, &holder, tier)?;
    let whole = fs::read(&pack)?;
    for damaged in [place, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[damaged] ^= 1;
        // Its pages are mapped, and it keeps its number.
        fs::write(&pack, bytes)?;
        refused(stasis, &holder, tier).with_context(|| format!("byte {damaged}"))?;
        assert_eq!(stasis.inventory()?, inventory);
    }
    fs::write(&pack, whole)?;
    stasis.inject("unlock job slow:1 1")?;
    holder.bundle.restore("image")?;
    ensure!(stasis.driver_is_called()? && stasis.host.path(BEGUN).exists());
    holder.goes_on()?;
    holder.end()
}

fn refused(stasis: &StasisHost, holder: &MemoryContainer<'_>, tier: &str) -> Result<()> {
    stasis.host.run(&["rm", "-f", BEGUN])?;
    // This order stays if nobody unlocks.
    stasis.inject("unlock job slow:1 1")?;
    let message = holder.bundle.restore_fails("image")?;
    assert_contains(&message, &["[image-damaged]"]);
    ensure!(!stasis.driver_is_called()?, "it was unlocked");
    stasis.inject("")?;
    if tier == "ram" {
        ensure!(!stasis.host.path(BEGUN).exists(), "tasks have run");
    }
    stasis.no_criu()?;
    let left = holder.processes()?;
    ensure!(left.is_empty(), "{left:?} are left");
    stasis.nothing_to_put_right()
}

/// A pack, and a byte of the last chunk that is stored in it.
fn last_chunk(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    tier: &str,
) -> Result<(PathBuf, usize)> {
    let image = holder.bundle.image_path("image");
    let index = Index::read(&image)?.context("no index")?;
    let chunks = index.areas().flat_map(|area| &area.chunks);
    let place = chunks.last().context("nothing is stored")?.place;
    let pack = index.packs[usize::try_from(place.pack)?].file_name();
    let id = index.image_id.to_string();
    let directory = match tier {
        "ram" => stasis.host.path(RAM).join(id),
        "disk" => stasis.host.path(DISK).join(id),
        _ => image,
    };
    Ok((directory.join(pack), usize::try_from(place.offset)? + 5000))
}
