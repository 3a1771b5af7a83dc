//! GPU contents that are stored from files of ours, and away from their processes while CRIU dumps
//! these.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};
use stasis_memory_store::{CriuHas, Index};

use crate::gpu_contents::with_criu;
use crate::limits::{KEEP_LIMITS, LIMIT, limit_file, limited};
use crate::suspended::{charged, in_file, peak, seen};

const MIB: u64 = 1 << 20;
const HOLDS: &str = "stasis-gpu-hold";
const OPERATES: &str = "stasis-runtime";
const KEEPER: &str = "stasis-keeper";
/// CRIU has stopped all tasks, and stops itself.
const IN_THE_DUMP: &str = "take:1:stop";

on_hosts!(every_tier_has_them: trixie, crun_on_trixie_v2);

fn every_tier_has_them(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    let _containerd = stasis.containerd()?;
    let holder = started(stasis)?;
    // A thread of the program gets memory of its own with its first answer.
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    for tier in ["portable", "disk", "ram"] {
        let setting = format!("bulk_memory.tier = \"{tier}\"\n");
        stasis.set(&stasis.low_level, &setting)?;
        let before = seen(stasis, &holder.bundle)?;
        holder.bundle.checkpoint("goes-on", &["--leave-running"])?;
        holder.goes_on().context(tier)?;
        assert_eq!(seen(stasis, &holder.bundle)?, before, "{tier}");
        let next = holder.next();
        holder.bundle.checkpoint("ends", &[])?;
        for image in ["goes-on", "ends"] {
            has_holes(&holder, image).with_context(|| format!("{tier}: {image}"))?;
        }
        holder.bundle.restore("goes-on")?;
        holder.is_back_at(next - 1);
        holder.goes_on().context(tier)?;
        holder.end()?;
        holder.bundle.restore("ends")?;
        holder.goes_on().context(tier)?;
        ensure!(
            in_file(stasis, &holder.bundle)? == 0,
            "{tier}: a file is still mapped"
        );
    }
    holder.end()
}

fn started(stasis: &StasisHost) -> Result<MemoryContainer<'_>> {
    MemoryContainer::start(stasis, "job", "exec /bin/memcheck 48 10000", 10000)
}

/// CRIU has none of them.
fn has_holes(holder: &MemoryContainer<'_>, image: &str) -> Result<()> {
    let index = Index::read(&holder.bundle.image_path(image))?.context("no index")?;
    let holes = index.areas().filter(|area| area.criu_has == CriuHas::Hole);
    let bytes: u64 = holes.map(|hole| hole.bytes).sum();
    ensure!(bytes >= 48 * MIB, "{bytes} bytes are stored");
    let by_criu = with_criu(&holder.bundle, image)?;
    ensure!(by_criu < 40 * MIB, "CRIU has {by_criu} bytes");
    Ok(())
}

#[test]
fn the_limit_and_the_charge_of_the_container_stay_as_they_are() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    let _containerd = stasis.containerd()?;
    stasis.set("runc", KEEP_LIMITS)?;
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

#[test]
fn they_come_back_whoever_fails_in_the_dump() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid_v2()?)?;
    let _containerd = stasis.containerd()?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("good", &["--leave-running"])?;
    holder.goes_on()?;
    let before = seen(stasis, &holder.bundle)?;
    let inventory = stasis.inventory()?;
    for fault in ["take:1:error", "take:1:panic", "take:1:kill"] {
        for pauses in [false, true] {
            holder.inject(fault)?;
            if pauses {
                holder.bundle.pause()?;
            }
            let message = holder.bundle.checkpoint_fails("failed", &[])?;
            assert_contains(&message, &["as before"]);
            if pauses {
                holder.bundle.resume()?;
            }
            holder.inject("")?;
            holder.goes_on().context(fault)?;
            holder.nothing_left_of_dump("failed")?;
            assert_eq!(seen(stasis, &holder.bundle)?, before, "{fault}");
            assert_eq!(stasis.inventory()?, inventory, "{fault}");
        }
    }
    holder.end()
}

#[test]
fn they_come_back_whoever_is_killed_in_the_dump() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    let holder = started(stasis)?;
    // A thread of the program gets memory of its own with its first answer.
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    let all = [
        &[HOLDS][..],
        &[OPERATES],
        &[OPERATES, HOLDS],
        &[KEEPER, OPERATES, HOLDS],
    ];
    for options in [&["--leave-running"][..], &[]] {
        for killed in all {
            let name = || format!("{killed:?} killed {options:?}");
            let before = seen(stasis, &holder.bundle)?;
            let task = holder.bundle.pid()?;
            killed_in_the_dump(stasis, &holder, killed, options).with_context(name)?;
            if holder.bundle.pid()? == task {
                assert_eq!(seen(stasis, &holder.bundle)?, before, "{}", name());
            }
        }
    }
    holder.bundle.checkpoint("after-all", &[])?;
    holder.bundle.restore("after-all")?;
    holder.goes_on()?;
    holder.end()
}

fn killed_in_the_dump(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    killed: &[&str],
    options: &[&str],
) -> Result<()> {
    holder.inject(IN_THE_DUMP)?;
    let image = match killed == [HOLDS] {
        true => "good",
        false => "killed",
    };
    let checkpoint = holder.bundle.begin_checkpoint(image, options)?;
    wait_until_clear(|| criu_stands(stasis))?;
    holder.inject("")?;
    ensure!(in_file(stasis, &holder.bundle)? == 0, "they are not away");
    let names = killed.join("|");
    stasis.host.run(&["pkill", "-KILL", "-x", &names])?;
    if killed == [HOLDS] {
        stasis.host.run(&["pkill", "-CONT", "-x", "criu"])?;
        return without_who_held_them(holder, checkpoint, options);
    }
    drop(checkpoint.wait_with_output()?);
    if killed.contains(&KEEPER) {
        // Its caller may have taken it along.
        let kill = "pkill -KILL -x criu || true";
        stasis.host.run(&["sh", "-c", kill])?;
        stasis.host.run(&[PROGRAM, "recover", "--all"])?;
    }
    stasis.nothing_to_put_right()?;
    holder.goes_on()?;
    holder.nothing_left_of_dump("killed")
}

/// The image is good; who goes on gets them from the store.
fn without_who_held_them(
    holder: &MemoryContainer<'_>,
    checkpoint: Child,
    options: &[&str],
) -> Result<()> {
    let output = checkpoint.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    if options.is_empty() {
        holder.bundle.restore("good")?;
    }
    holder.goes_on()
}

/// Why it does not.
fn criu_stands(stasis: &StasisHost) -> Result<Option<String>> {
    let processes = stasis.host.run_for_text(&["ps", "-eo", "stat=,comm="])?;
    let stands = |line: &str| line.starts_with('T') && line.ends_with(" criu");
    Ok((!processes.lines().any(stands)).then_some(processes))
}

/// A container that was half restored is ended before its GPU is unlocked, and the image is named.
#[test]
fn what_is_damaged_is_not_restored() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    let _containerd = stasis.containerd()?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("good", &[])?;
    let image = holder.bundle.image_path("good");
    let index = Index::read(&image)?.context("no index")?;
    let chunks = index.areas().flat_map(|area| &area.chunks);
    let place = chunks.last().context("nothing is stored")?.place;
    let pack = index.packs[usize::try_from(place.pack)?].file_name();
    let pack = image.join(pack);
    let whole = fs::read(&pack)?;
    let mut damaged = whole.clone();
    damaged[usize::try_from(place.offset)? + 5000] ^= 1;
    fs::write(&pack, damaged)?;
    let message = holder.bundle.restore_fails("good")?;
    assert_contains(&message, &["[image-damaged]", "cannot be read from"]);
    fs::write(&pack, whole)?;
    holder.bundle.restore("good")?;
    holder.goes_on()?;
    holder.end()
}

/// No process of a frozen container can map anything: they come back with its resume, and what its
/// caller does meanwhile finds it as always.
#[test]
fn a_paused_container_gets_them_back_at_its_resume() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    let _containerd = stasis.containerd()?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    let before = seen(stasis, &holder.bundle)?;
    paused(stasis, &holder, "once")?;
    holder.bundle.resume()?;
    holder.goes_on()?;
    assert_eq!(seen(stasis, &holder.bundle)?, before);

    paused(stasis, &holder, "again")?;
    holder.bundle.checkpoint("twice", &["--leave-running"])?;
    ensure!(in_file(stasis, &holder.bundle)? == 0, "they are not away");
    holder.bundle.resume()?;
    holder.goes_on()?;
    assert_eq!(seen(stasis, &holder.bundle)?, before);

    paused(stasis, &holder, "who-holds-them-is-killed")?;
    stasis.host.run(&["pkill", "-KILL", "-x", HOLDS])?;
    holder.bundle.resume()?;
    holder.goes_on()?;
    assert_eq!(seen(stasis, &holder.bundle)?, before);

    paused(stasis, &holder, "deleted")?;
    let next = holder.next();
    holder.bundle.delete()?;
    wait_until_clear(|| nobody_holds(stasis))?;
    stasis.nothing_to_put_right()?;
    for image in ["twice", "deleted"] {
        has_holes(&holder, image)?;
    }
    holder.bundle.restore("deleted")?;
    holder.is_back_at(next);
    holder.goes_on()?;
    paused(stasis, &holder, "ends")?;
    holder.bundle.checkpoint("ends", &[])?;
    holder.bundle.restore("ends")?;
    holder.goes_on()?;
    holder.end()
}

/// Pauses it for a checkpoint.
fn paused(stasis: &StasisHost, holder: &MemoryContainer<'_>, image: &str) -> Result<()> {
    holder.bundle.pause()?;
    holder.bundle.checkpoint(image, &["--leave-running"])?;
    assert_eq!(holder.bundle.status()?, "paused");
    ensure!(in_file(stasis, &holder.bundle)? == 0, "they are not away");
    Ok(())
}

/// Why that is not so.
fn nobody_holds(stasis: &StasisHost) -> Result<Option<String>> {
    let processes = stasis.host.run_for_text(&["ps", "-eo", "comm="])?;
    let mut lines = processes.lines();
    Ok(lines.any(|line| line == HOLDS).then_some(processes.clone()))
}
