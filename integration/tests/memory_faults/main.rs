//! Faults in CRIU's plugin wherever it does something, and CRIU killed in the middle: no container loses memory, nothing is left behind, the
//! error says what it was and how things are, and the next operation succeeds.

mod killed;
mod subject;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use stasis_integration::holder::Holder;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::message::says;

use subject::{Subject, difference};

/// Of an error after a failed checkpoint.
const RUNS_ON: &str = "the container runs on as before";
/// Of a container that CRIU refuses when all its memory has been looked at: a deleted file that is larger than it takes along.
const GHOST: &str = "head -c 2000000 /dev/zero >/ghost; exec 9</ghost; rm /ghost;";

#[test]
fn of_processes_on_hybrid_cgroups() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    lab.set("runc", "bulk_memory.containers = \"all\"\n")?;
    let command = "exec /bin/heaps 10000 40 random plain half-zero exec";
    let heaps = Subject::start(&lab, "heaps", command, 10000)?;
    heaps.dumps_fail()?;
    heaps.dumps_succeed()?;
    heaps.restores_fail()?;
    heaps.holder.end()?;
    both_ways_fail(&lab)?;
    guards_fail(&lab)
}

#[test]
fn of_a_gpu_container_on_cgroups_v2() -> Result<()> {
    let lab = Lab::start(Suite::Trixie, Cgroups::V2, "crun")?;
    let _containerd = lab.containerd()?;
    lab.set("crun", "bulk_memory.tier = \"disk\"\n")?;
    let gpu = Subject::start(&lab, "gpu", "exec /bin/memcheck 96", 10000)?;
    gpu.dumps_fail()?;
    gpu.dumps_succeed()?;
    gpu.restores_fail()
}

#[test]
fn criu_is_killed_from_outside() -> Result<()> {
    let seed = match std::env::var("STASIS_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => fastrand::u64(..1 << 32),
    };
    eprintln!("STASIS_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let lab = Lab::start(Suite::Sid, Cgroups::V2, "runc")?;
    let _containerd = lab.containerd()?;
    let gpu = Subject::start(&lab, "gpu", "exec /bin/memcheck 192", 10000)?;
    gpu.dumps_are_killed(&mut random)?;
    gpu.restores_are_killed(&mut random)
}

/// CRIU fails by itself, and the way back, too.
fn both_ways_fail(lab: &Lab) -> Result<()> {
    let command = format!("{GHOST} exec /bin/heaps 10001 24 random plain heap");
    let holder = Holder::start(lab, "ghost", &command, 10001)?;
    let before = lab.inventory()?;
    let faults = [
        "",
        "fill:1:error",
        "fill:3:panic",
        "fill:5:kill",
        "end:1:error",
        "end:1:panic",
        "end:1:kill",
    ];
    for fault in faults {
        holder.order(fault)?;
        let said = holder.bundle.checkpoint_fails("ghost", &[])?;
        says(&said, &[RUNS_ON]);
        if !fault.ends_with("kill") {
            says(&said, &["Can't dump ghost file"]);
        }
        if fault.ends_with("error") {
            says(&said, &["bulk memory: a fault for a test"]);
        }
        holder.nothing_left_of_dump("ghost").context(fault)?;
        holder.goes_on().context(fault)?;
    }
    assert_eq!(difference(&before, &lab.inventory()?), None);
    holder.end()
}

/// Nobody gives memory back: that is said, nothing finds zeros in its place, and there is an end to it.
fn guards_fail(lab: &Lab) -> Result<()> {
    let command = "exec /bin/heaps 10002 24 random plain heap";
    let holder = Holder::start(lab, "lost", command, 10002)?;
    for kind in ["error", "panic"] {
        holder.bundle.checkpoint("good", &["--leave-running"])?;
        holder.goes_on()?;
        let next = holder.next();
        holder.order(&format!("finish:1:kill,guard:1:{kind}"))?;
        let said = holder.bundle.checkpoint_fails("lost", &[])?;
        says(&said, &["memory could not be given back: ", "kill it"]);
        holder.order("")?;
        ensure!(!holder.missing()?.is_empty(), "{kind}: it lacks nothing");
        let answer = lab.ask(10002)?;
        ensure!(answer.is_none(), "{kind}: {answer:?}");
        let said = holder.bundle.checkpoint_fails("again", &[])?;
        says(&said, &["is still missing", "end the container"]);
        holder.end()?;
        lab.no_criu()?;

        holder.is_back_at(next - 1);
        holder.bundle.restore("good")?;
        holder.goes_on()?;
        holder.order(&format!("end:1:error,guard:1:{kind}"))?;
        let options = ["--leave-running"];
        let said = holder.bundle.checkpoint_fails("good", &options)?;
        says(&said, &["could not be given back: ", "restore the image"]);
        holder.order("")?;
        holder.end()?;
        lab.no_criu()?;
        holder.bundle.restore("good")?;
        holder.goes_on()?;
    }
    holder.end()
}
