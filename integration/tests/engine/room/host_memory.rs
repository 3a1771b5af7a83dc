//! Host memory is promised once, too.

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::{Other, nothing_is_reserved, state, suspend, toggle};

const PORT: u16 = 10262;

on_hosts!(all_cases: sid_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "32", "10262"])?;
    memory.comes_up(PORT, "ok 0")?;
    a_checkpoint_is_refused_or_waits(stasis, &memory)?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("ok 1"));
    a_tmpfs_is_left_for_the_image(stasis, &memory)?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("ok 2"));
    a_suspended_one_needs_none(stasis, &memory)?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("ok 3"));
    memory.delete()?;
    a_restore_is_refused(stasis, &memory)?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("ok 1"));
    memory.delete()?;
    a_container_that_somebody_else_makes_is_left_alone(stasis, &memory)?;
    nothing_is_reserved(stasis)
}

fn a_checkpoint_is_refused_or_waits(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    let other = Other::reserves(stasis, "host_memory")?;
    stasis.set(&stasis.low_level, "deadlines.room_s = 1\n")?;
    let message = memory.checkpoint_fails("refused", &["--leave-running"])?;
    let parts = [
        "[no-host-memory]",
        "operations on other (process 4711)",
        "nothing was changed",
    ];
    assert_contains(&message, &parts);
    let check = [PROGRAM, "check", "--root", ROOT, "memory"];
    let output = stasis.command(check[0]).args(&check[1..]).output()?;
    assert_contains(&String::from_utf8_lossy(&output.stdout), &parts[..2]);
    ensure!(output.status.code() == Some(1));
    stasis.set(&stasis.low_level, "deadlines.room_s = 3600\n")?;
    let mut operation = memory.begin_checkpoint("waited", &["--leave-running"])?;
    let begun = memory.record().join("undo.json");
    wait_until_clear(|| Ok((!begun.exists()).then(|| "it has not begun".to_owned())))?;
    other.dies()?;
    ensure!(operation.wait()?.success());
    Ok(())
}

fn a_tmpfs_is_left_for_the_image(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    let other = Other::reserves(stasis, "contents")?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    memory.checkpoint("tmpfs", &["--leave-running"])?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    let parts = [
        "GPU contents go into the image",
        "the memory for GPU contents",
        "operations on other (process 4711)",
    ];
    assert_contains(&notes, &parts);
    other.dies()
}

/// The container's GPU contents are in host memory already.
fn a_suspended_one_needs_none(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    // Contents in a file have to become memory of the process, and do need some.
    let settings = "deadlines.room_s = 0\ngpu_checkpoint.path = \"driver\"\n";
    stasis.set(&stasis.low_level, settings)?;
    suspend(stasis, memory)?;
    let other = Other::reserves(stasis, "host_memory")?;
    memory.checkpoint("suspended", &["--leave-running"])?;
    ensure!(state(stasis, memory)? == "checkpointed");
    ensure!(toggle(stasis, memory).status()?.success());
    other.dies()
}

fn a_restore_is_refused(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    let other = Other::reserves(stasis, "host_memory")?;
    stasis.set(&stasis.low_level, "deadlines.room_s = 0\n")?;
    let message = memory.restore_fails("waited")?;
    assert_contains(
        &message,
        &["[no-host-memory]", "operations on other (process 4711)"],
    );
    other.dies()?;
    memory.restore("waited")
}

/// While the restore waits for room, another program starts a container of its id.
fn a_container_that_somebody_else_makes_is_left_alone(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
) -> Result<()> {
    let other = Other::reserves(stasis, "host_memory")?;
    stasis.set(&stasis.low_level, "deadlines.room_s = 3600\n")?;
    let mut restore = memory.begin_restore("waited")?;
    let begun = memory.record().join("lock");
    wait_until_clear(|| Ok((!begun.exists()).then(|| "it has not begun".to_owned())))?;
    let directory = memory.directory();
    let run = ["--root", ROOT, "run", "--detach", "--bundle", &directory];
    let arguments = [&["/usr/sbin/runc"], &run[..], &[&memory.id]].concat();
    let quietly = ["bash", "-c", "exec \"$@\" </dev/null >/dev/null 2>&1", "-"];
    stasis.run(&[&quietly, &arguments[..]].concat())?;
    other.dies()?;
    ensure!(!restore.wait()?.success(), "there are two of it");
    let said = memory.message()?.unwrap_or_default();
    assert_contains(
        &said,
        &["a container of the same id", "nothing had been restored"],
    );
    ensure!(memory.status()? == "running", "it was ended");
    ensure!(stasis.ask_until_up(PORT)? == "ok 0");
    // An operation that looks for room removes unlocked entries; the restore may have ended before.
    stasis.run(&["rm", "-f", "/run/stasis/ledger/other"])?;
    memory.delete()
}
