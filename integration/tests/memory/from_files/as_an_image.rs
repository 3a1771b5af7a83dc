//! In memory, the file of contents is a pack of the image from the beginning: nothing is copied.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::{IN_MEMORY, MEMORY};
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::{Index, Reader};

use super::{MIB, has_holes, started};

/// The part of a path that all packs have.
const PACK: &str = "/stasis-memory-";
/// The least that a process here has in one pack.
const MAPPED: u64 = 16 * MIB;

#[test]
fn a_restored_process_has_no_copy_of_its_own() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("image", &[])?;
    has_holes(&holder, "image")?;
    let image = holder.bundle.image_path("image");
    let index = Index::read(&image)?.context("no index")?;
    let directory = stasis.path(MEMORY).join(index.image_id.to_string());
    let reader = Reader::open(&image, &index, Some(&directory))?;
    ensure!(index.areas().all(|area| reader.in_place(area).is_some()));
    let stored = packs_in(&directory)?;
    ensure!(stored.len() == 1, "{stored:?}");

    stasis.hold_driver("restore job", "restoring")?;
    let restore = holder.bundle.begin_restore("image")?;
    stasis.until_driver_is_called()?;
    wait_until_clear(|| mapped_alone(stasis, 1))?;
    stasis.let_driver_go("restoring")?;
    let output = restore.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    holder.goes_on()?;
    assert_eq!(packs_in(&directory)?, stored);
    // The image is good for the next restore, too.
    holder.end()?;
    holder.bundle.restore("image")?;
    holder.is_back_at(holder.next() - 1);
    holder.goes_on()?;
    holder.end()
}

/// A process that could still write to the pack could change what others restore.
#[test]
fn what_a_process_keeps_mapped_becomes_no_image() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let command = "exec /bin/memcheck 48 10000 keep";
    let keeper = MemoryContainer::start(stasis, "keeper", command, 10000)?;
    stasis.hold_driver("checkpoint keeper", "copied")?;
    let checkpoint = keeper
        .bundle
        .begin_checkpoint("kept", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    wait_until_clear(|| kept(stasis, &keeper))?;
    stasis.let_driver_go("copied")?;
    ensure!(
        !checkpoint.wait_with_output()?.status.success(),
        "it has become an image"
    );
    let message = keeper.bundle.message()?.context("no message")?;
    assert_contains(&message, &["has kept a mapping", "as before"]);
    keeper.goes_on()?;
    let stores = fs::read_dir(stasis.path(MEMORY))?.count();
    ensure!(stores == 0, "{stores} are left");
    // The process's own mapping is taken away with the rest.
    stasis.run(&[
        "sh",
        "-c",
        "pkill -KILL -P $0",
        &keeper.bundle.pid()?.to_string(),
    ])?;
    keeper.bundle.checkpoint("taken", &[])?;
    keeper.bundle.restore("taken")?;
    keeper.goes_on()?;
    keeper.end()
}

/// Returns the mappings, unless the process has kept one of a pack.
fn kept(stasis: &StasisHost, keeper: &MemoryContainer<'_>) -> Result<Option<String>> {
    let maps = format!("/proc/{}/maps", keeper.bundle.pid()?);
    let maps = stasis.run_for_text(&["cat", &maps])?;
    let mapped = maps.lines().filter(|line| line.contains(PACK));
    Ok((mapped.count() < 2).then_some(maps))
}

/// Returns the packs in a directory, with digests.
pub(super) fn packs_in(directory: &Path) -> Result<Vec<(String, blake3::Hash)>> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.display().to_string();
        if name.contains(PACK) {
            packs.push((name, blake3::hash(&fs::read(&path)?)));
        }
    }
    Ok(packs)
}

/// Returns the mappings if too few processes have a pack mapped, or one has its own page of it.
pub(super) fn mapped_alone(stasis: &StasisHost, processes: usize) -> Result<Option<String>> {
    let script = "grep -hs -A 22 'rw-p.*/stasis-memory-.*[.]pack' /proc/[0-9]*/smaps || true";
    let smaps = stasis.run_for_text(&["sh", "-c", script])?;
    let numbers = |name: &str| -> Vec<u64> {
        let lines = smaps.lines().filter_map(|line| line.strip_prefix(name));
        let numbers = lines.filter_map(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        numbers.collect()
    };
    let (sizes, own) = (numbers("Size:"), numbers("Anonymous:"));
    let whole = sizes.iter().filter(|size| **size >= MAPPED >> 10);
    // A process that copies together with one of them has the same memory.
    let is_so = whole.count() >= processes && own.iter().all(|own| *own == 0);
    Ok((!is_so).then_some(smaps))
}
