//! The tmpfs for contents has no room, whichever step finds that: they go into the image.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{IN_MEMORY, MEMORY};
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Plan, Trace, phase_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::needs;

use super::{has_holes, started};

const LEAVES: [&str; 1] = ["--leave-running"];
/// A script in front of the runtime.
const GATED: &str = "/usr/local/bin/gated-runtime";
/// Enough for 48 MiB and all reservations beside them, in MiB.
const ENOUGH: u64 = 512;

/// The reservation before the lock shows it.
#[test]
fn it_is_too_small() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let holder = started(stasis)?;
    let mut in_memory = Vec::new();
    for mib in [1, 48, 64, 112, 120, 176, 240, ENOUGH] {
        stasis.host.mount_memory(mib << 20, MEMORY)?;
        holder.bundle.checkpoint("image", &LEAVES)?;
        has_holes(&holder, "image").with_context(|| format!("{mib} MiB"))?;
        let is_in_memory = !names_in(&stasis.path(MEMORY))?.is_empty();
        let notes = stasis.operation("checkpoint")?["notes"].to_string();
        let says =
            notes.contains("GPU contents go into the image: there is no room for it in memory");
        ensure!(says != is_in_memory, "{mib} MiB: {notes}");
        in_memory.push(is_in_memory);
        holder.goes_on()?;
        let next = holder.next();
        holder.end()?;
        holder.bundle.restore("image")?;
        holder.is_back_at(next - 1);
        holder.goes_on()?;
        unmount(stasis)?;
    }
    ensure!(
        !in_memory[0] && in_memory.is_sorted() && in_memory[in_memory.len() - 1],
        "{in_memory:?}"
    );
    holder.end()
}

/// Another program takes the room that was found, before the packs get theirs.
#[test]
fn it_is_filled_meanwhile() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let gate = &Gate::build(stasis, "runtime", GATED, RUNTIME, "*")?;
    let bundle = Bundle::make(stasis, "job", &["/bin/memcheck", "48", "10000"])?.through(GATED);
    let job = MemoryContainer::of(stasis, bundle, 10000)?;
    job.bundle.checkpoint("first", &LEAVES)?;
    job.goes_on()?;
    for left in [0, 1, 64, 111] {
        stasis.host.mount_memory(ENOUGH << 20, MEMORY)?;
        filled(stasis, gate, &job, left).with_context(|| format!("{left} MiB"))?;
        let notes = stasis.operation("checkpoint")?["notes"].to_string();
        assert_contains(&notes, &["No space left", "the driver and CRIU move"]);
        assert_eq!(names_in(&stasis.path(MEMORY))?, ["filler"]);
        job.goes_on()?;
        stasis.run(&["rm", &format!("{MEMORY}/filler")])?;
        job.end()?;
        job.bundle.restore("full")?;
        job.is_back_at(job.next() - 1);
        job.goes_on().with_context(|| format!("{left} MiB"))?;
        job.bundle.checkpoint("next", &LEAVES)?;
        has_holes(&job, "next")?;
        job.goes_on()?;
        unmount(stasis)?;
    }
    job.bundle.checkpoint("ends", &[])?;
    job.bundle.restore("ends")?;
    job.goes_on()?;
    job.end()
}

/// Makes a checkpoint that finds `left` MiB when the files are made.
fn filled(
    stasis: &StasisHost,
    gate: &Gate<'_>,
    job: &MemoryContainer<'_>,
    left: u64,
) -> Result<()> {
    gate.close()?;
    let script = format!("head -c $(({ENOUGH} - {left}))M /dev/zero > {MEMORY}/filler || true");
    let mut fills = stasis.command("bash");
    fills.args(["-c", &script]);
    let mut is_reserved = false;
    let plan = Plan {
        class: Class::Changes,
        // Room is reserved, and the process that makes the file is put into a cgroup of its own.
        at: At::First(Box::new(move |hit| {
            let path = hit.call.path.as_deref().unwrap_or(Path::new(""));
            is_reserved |= path.starts_with("/run/stasis/ledger");
            is_reserved && path.ends_with("cgroup.procs")
        })),
        action: Action::Do(Box::new(move |_| {
            ensure!(fills.status()?.success(), "it is not filled");
            Ok(())
        })),
    };
    let checkpoint = job.bundle.begin_checkpoint("full", &LEAVES)?;
    let held = gate.held(|| false)?.context("no runtime was started")?;
    let traced = Trace::from_start(held, plan, phase_in(job.bundle.record()))?.seen()?;
    ensure!(!traced.hits.is_empty(), "not among {:?}", traced.calls);
    let output = checkpoint.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{said}");
    Ok(())
}

/// Unmounts lazily: processes may still have a pack of it mapped.
fn unmount(stasis: &StasisHost) -> Result<()> {
    stasis.run(&["umount", "--lazy", MEMORY]).map(drop)
}
