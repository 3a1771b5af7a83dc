//! GPU contents that are stored from our files, and are away from their processes while CRIU dumps
//! these.

mod as_an_image;
mod beside_others;
mod beside_the_driver;
mod cancelled;
mod consumed;
mod cut_off;
mod damaged;
mod eight_processes;
mod ended;
mod fall_back;
mod filtered;
mod grabbed;
mod odd_programs;
mod paused;
pub(crate) mod replicas;
mod staged;
mod stock_runc;
mod tmpfs_is_full;
mod usual_pod;
mod without_the_image;

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::contents::{Contents, IN_MEMORY};
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};
use stasis_memory_store::Index;

use crate::gpu_contents::with_criu;
use crate::limits::{LIMIT, limit_file, limited, with_available};
use crate::suspended::{charged, in_file, peak, seen};

const MIB: u64 = 1 << 20;
const HOLDS: &str = "stasis-gpu-hold";

on_hosts!(every_place_has_them: trixie, crun_on_trixie_v2);

fn every_place_has_them(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let holder = started(stasis)?;
    // A thread of the program gets memory of its own with its first answer.
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    for place in Contents::ALL {
        stasis.set(&stasis.low_level, place.setting())?;
        let name = || format!("{place:?}");
        let before = seen(stasis, &holder.bundle)?;
        holder.bundle.checkpoint("goes-on", &["--leave-running"])?;
        holder.goes_on().with_context(name)?;
        assert_eq!(seen(stasis, &holder.bundle)?, before, "{place:?}");
        let next = holder.next();
        holder.bundle.checkpoint("ends", &[])?;
        for image in ["goes-on", "ends"] {
            has_holes(&holder, image).with_context(|| format!("{place:?}: {image}"))?;
        }
        holder.bundle.restore("goes-on")?;
        holder.is_back_at(next - 1);
        holder.goes_on().with_context(name)?;
        holder.end()?;
        holder.bundle.restore("ends")?;
        holder.goes_on().with_context(name)?;
        ensure!(
            in_file(stasis, &holder.bundle)? == 0,
            "{place:?}: a file is still mapped"
        );
    }
    holder.end()
}

fn started(stasis: &StasisHost) -> Result<MemoryContainer<'_>> {
    MemoryContainer::start(stasis, "job", "exec /bin/memcheck 48 10000", 10000)
}

/// Checks that CRIU has none of the contents.
fn has_holes(holder: &MemoryContainer<'_>, image: &str) -> Result<()> {
    let index = Index::read(&holder.bundle.image_path(image))?.context("no index")?;
    let bytes: u64 = index.areas().map(|hole| hole.bytes).sum();
    ensure!(bytes >= 48 * MIB, "{bytes} bytes are stored");
    let by_criu = with_criu(&holder.bundle, image)?;
    ensure!(by_criu < 40 * MIB, "CRIU has {by_criu} bytes");
    Ok(())
}

#[test]
fn the_limit_and_the_charge_of_the_container_stay_as_they_are() -> Result<()> {
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    // The contents are below the minimum for files where memory has room for them.
    stasis.set("runc", "gpu_checkpoint.minimum_mib = 256\n")?;
    let memory = limited(stasis)?;
    let limit = limit_file(stasis, &memory)?;
    let before = charged(&limit)?;
    memory.checkpoint("goes-on", &["--leave-running"])?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    ensure!(charged(&limit)? < before + 16 * MIB, "they are charged");
    ensure!(peak(&limit)? <= LIMIT);
    memory.checkpoint("ends", &[])?;
    memory.restore("ends")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
    let limit = limit_file(stasis, &memory)?;
    assert_eq!(fs::read_to_string(&limit)?.trim(), LIMIT.to_string());
    ensure!(peak(&limit)? <= LIMIT);
    ensure!(in_file(stasis, &memory)? == 0, "a file is still mapped");
    memory.delete()
}

/// Once the files are made they have their room.
#[test]
fn the_host_needs_room_for_them_once() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let holder = started(stasis)?;
    for settings in ["", IN_MEMORY] {
        stasis.set(&stasis.low_level, settings)?;
        stasis.hold_driver("lock job", "made")?;
        let checkpoint = holder
            .bundle
            .begin_checkpoint("once", &["--leave-running"])?;
        stasis.until_driver_is_called()?;
        let said = with_available(stasis, 10, || {
            stasis.let_driver_go("made")?;
            let output = checkpoint.wait_with_output()?;
            ensure!(output.status.success(), "{output:?}");
            Ok(())
        });
        said.context(settings)?;
        has_holes(&holder, "once")?;
        holder.goes_on()?;
    }
    holder.end()
}
