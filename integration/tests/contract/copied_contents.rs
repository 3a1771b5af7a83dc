//! How the driver moves GPU contents, as code of ours sees it that answers its calls: what the
//! engine makes files of, and shares out among threads.

use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail, ensure};
use stasis::cuda::GpuMap;
use stasis_injection::{PutBack, Returned, Transfer, Unexpected, prepare, slots};
use stasis_linux::ProcessRef;
use stasis_linux::memory_file::{self, Clearing};

use crate::by_pid::ByPid;
use crate::caller::inventory;
use crate::workload::Workload;
use crate::{driver, lock};

const MIB: u64 = 1 << 20;
/// What the driver asks for beside what NVML says; measured: 9 MiB on driver 580.159.
const BESIDE: u64 = 64 * MIB;
/// What the driver may leave out, or write without memcpy: far less than one of its steps of 2 MiB.
/// Measured: 880 bytes on driver 580.159; the stand-in leaves the ends of pages out.
const OWN_WRITES: u64 = 128 << 10;

/// Has our code answer the driver's calls during one of its own.
fn answered(
    process: &ProcessRef,
    transfer: Transfer,
    call: impl FnOnce() -> Result<()>,
) -> Result<Returned> {
    let prepared = prepare(process, slots::inspect(process)?, transfer, 2)?;
    let armed = prepared.arm()?;
    let called = call();
    let back = armed.disarm()?;
    called?;
    match back {
        PutBack::Returned(returned) => Ok(returned),
        other => bail!("it is not as it was: {other:?}"),
    }
}

fn on_gpu(pid: i32) -> Result<u64> {
    let bytes: Option<u64> = inventory()?
        .uses(pid)
        .iter()
        .map(|used| used.memory_bytes)
        .sum();
    bytes.context("NVML does not say how much memory the process uses")
}

fn is_all(copied: u64, of: u64) -> bool {
    (of - OWN_WRITES..=of).contains(&copied)
}

#[test]
fn one_mmap_is_for_all_and_memcpy_moves_them_both_ways() -> Result<()> {
    let memcheck = Workload::memcheck(256)?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    let process = ProcessRef::open(pid)?.context("it has ended")?;
    lock(pid)?;
    let length = on_gpu(pid)? + BESIDE;
    let file = memory_file::create(length)?;
    memory_file::allocate(&file, length)?;
    drop(Clearing::start(&file, length, NonZeroUsize::MIN)?);
    let out = Transfer::Out {
        file,
        offset: 0,
        length,
        unexpected: Unexpected::Refuse,
    };
    let went = answered(&process, out, || Ok(driver().checkpoint(pid)?))?;
    println!("out: {went:?}");
    let contents = went
        .contents
        .context("the driver has asked for no memory")?;
    let asked = went.reported.answered.context("no mmap was answered")?;
    assert_eq!(went.reported.unanswered, None, "it has asked twice");
    ensure!(
        (256 * MIB..=length).contains(&asked),
        "it asks for {asked} bytes, where NVML says {}",
        length - BESIDE
    );
    ensure!(is_all(went.reported.copied, asked), "{went:?}");
    let back = answered(&process, Transfer::In { contents }, || {
        Ok(driver().restore(pid, &GpuMap::identity())?)
    })?;
    println!("back: {back:?}");
    ensure!(is_all(back.reported.copied, asked), "{back:?}");
    driver().unlock(pid)?;
    assert_eq!(memcheck.ask()?, "ok 1");
    Ok(())
}
