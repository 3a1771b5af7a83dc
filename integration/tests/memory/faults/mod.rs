//! Faults in CRIU's plugin wherever it does something, and CRIU killed in the middle: no container
//! loses memory, nothing is left behind, the error says what it was and how things are, and the
//! next operation succeeds.

mod container;
mod killed;
mod slow;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::seed::seed;
use stasis_integration::container::memory_container::{MemoryContainer, difference};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

use container::FaultyContainer;

/// Of an error after a failed checkpoint.
const RUNS_ON: &str = "the container runs on as before";
/// Of a container that CRIU refuses when all its memory has been looked at: a deleted file that is
/// larger than it takes along.
const GHOST: &str = "head -c 2000000 /dev/zero >/ghost; exec 9</ghost; rm /ghost;";

#[test]
fn of_processes_on_hybrid_cgroups() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    let _containerd = stasis.containerd()?;
    stasis.set("runc", "bulk_memory.heaps = true\n")?;
    let command = "exec /bin/heaps 10000 40 random plain half-zero exec";
    let heaps = FaultyContainer::start(&stasis, "heaps", command, 10000)?;
    heaps.dumps_fail()?;
    heaps.dumps_succeed()?;
    heaps.restores_fail()?;
    heaps.holder.end()?;
    both_ways_fail(&stasis)?;
    guards_fail(&stasis)
}

#[test]
fn of_a_gpu_container_on_cgroups_v2() -> Result<()> {
    let stasis = StasisHost::of(HostKind::crun_on_trixie_v2()?)?;
    let _containerd = stasis.containerd()?;
    let settings = "bulk_memory.tier = \"disk\"\ngpu_checkpoint.path = \"driver\"\n";
    stasis.set("crun", settings)?;
    let gpu = FaultyContainer::start(&stasis, "gpu", "exec /bin/memcheck 96", 10000)?;
    gpu.dumps_fail()?;
    gpu.dumps_succeed()?;
    gpu.restores_fail()
}

#[test]
fn criu_is_killed_from_outside() -> Result<()> {
    let seed = seed()?;
    eprintln!("STASIS_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let stasis = StasisHost::of(HostKind::sid_v2()?)?;
    let _containerd = stasis.containerd()?;
    stasis.set("runc", "gpu_checkpoint.path = \"driver\"\n")?;
    let gpu = FaultyContainer::start(&stasis, "gpu", "exec /bin/memcheck 192", 10000)?;
    gpu.dumps_are_killed(&mut random)?;
    gpu.restores_are_killed(&mut random)
}

/// CRIU fails by itself, and the way back, too.
fn both_ways_fail(stasis: &StasisHost) -> Result<()> {
    let command = format!("{GHOST} exec /bin/heaps 10001 24 random plain heap");
    let holder = MemoryContainer::start(stasis, "ghost", &command, 10001)?;
    let before = stasis.inventory()?;
    let faults = [
        "",
        "fill:1:error",
        "fill:3:panic",
        "fill:5:kill",
        "release:1:error",
        "release:2:kill",
        "end:1:error",
        "end:1:panic",
        "end:1:kill",
    ];
    for fault in faults {
        holder.inject(fault)?;
        let message = holder.bundle.checkpoint_fails("ghost", &[])?;
        assert_contains(&message, &[RUNS_ON]);
        if !fault.ends_with("kill") {
            assert_contains(&message, &["Can't dump ghost file"]);
        }
        if fault.ends_with("error") {
            assert_contains(&message, &["bulk memory: a fault for a test"]);
        }
        holder.nothing_left_of_dump("ghost").context(fault)?;
        holder.goes_on().context(fault)?;
    }
    assert_eq!(difference(&before, &stasis.inventory()?), None);
    holder.end()
}

/// Nobody gives memory back: the message says so, nothing finds zeros in its place, and there is an
/// end to it.
fn guards_fail(stasis: &StasisHost) -> Result<()> {
    let command = "exec /bin/heaps 10002 24 random plain heap";
    let holder = MemoryContainer::start(stasis, "lost", command, 10002)?;
    for kind in ["error", "panic"] {
        holder.bundle.checkpoint("good", &["--leave-running"])?;
        holder.goes_on()?;
        let next = holder.next();
        holder.inject(&format!("finish:1:kill,daemon:1:{kind}"))?;
        let message = holder.bundle.checkpoint_fails("lost", &[])?;
        assert_contains(
            &message,
            &["memory could not be given back: ", "kill the container"],
        );
        holder.inject("")?;
        ensure!(!holder.missing()?.is_empty(), "{kind}: it lacks nothing");
        ensure!(stasis.is_silent(10002)?, "{kind}: it answers");
        let message = holder.bundle.checkpoint_fails("again", &[])?;
        assert_contains(&message, &["is still missing", "end the container"]);
        holder.end()?;
        stasis.no_criu()?;

        holder.is_back_at(next - 1);
        holder.bundle.restore("good")?;
        holder.goes_on()?;
        holder.inject(&format!("end:1:error,daemon:1:{kind}"))?;
        let options = ["--leave-running"];
        let message = holder.bundle.checkpoint_fails("good", &options)?;
        assert_contains(
            &message,
            &["could not be given back: ", "restore the image"],
        );
        holder.inject("")?;
        holder.end()?;
        stasis.no_criu()?;
        holder.bundle.restore("good")?;
        holder.goes_on()?;
    }
    holder.end()
}
