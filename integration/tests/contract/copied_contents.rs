//! The driver's moves of GPU contents, as seen by our code that answers its calls: the engine
//! stores these contents in files, and divides the copying among threads.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stasis_gpu::cuda::GpuMap;
use stasis_injection::{Armed, PutBack, Returned, Transfer, prepare, slots};
use stasis_linux::ProcessRef;
use stasis_linux::memory_file::{self, Clearing};

use crate::by_pid::ByPid;
use crate::caller::inventory;
use crate::workload::Workload;
use crate::{driver, lock};

const MIB: u64 = 1 << 20;
/// The bytes that the driver moves with one memcpy.
const STEP: usize = 2 << 20;
/// The bytes that the driver asks for beyond NVML's figure; measured: 9 MiB on driver 580.159.
const BESIDE: u64 = 64 * MIB;
/// The bytes that the driver may leave out, or write without memcpy: far less than its step of 2
/// MiB. Measured: 880 bytes on driver 580.159; the stand-in leaves the ends of pages out.
const OWN_WRITES: u64 = 128 << 10;

/// Has our code answer the driver's calls during one call of the driver's API.
fn answered(
    process: &ProcessRef,
    transfer: Transfer,
    call: impl FnOnce(&Armed) -> Result<()>,
) -> Result<Returned> {
    let prepared = prepare(process, slots::inspect(process)?, transfer, 2)?;
    let armed = prepared.arm()?;
    let called = call(&armed);
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

/// A locked workload, and a file for its contents.
struct Locked {
    memcheck: Workload,
    process: ProcessRef,
    file: File,
    length: u64,
}

impl Locked {
    fn with_file() -> Result<Self> {
        let memcheck = Workload::memcheck(256)?;
        assert_eq!(memcheck.ask()?, "ok 0");
        let pid = memcheck.pid();
        let process = ProcessRef::open(pid)?.context("it has ended")?;
        lock(pid)?;
        let length = on_gpu(pid)? + BESIDE;
        Ok(Self {
            memcheck,
            process,
            file: cleared(length)?,
            length,
        })
    }
}

fn into(file: File, length: u64) -> Transfer {
    Transfer::Out {
        file,
        offset: 0,
        length,
    }
}

fn cleared(length: u64) -> Result<File> {
    let file = memory_file::create(length)?;
    memory_file::allocate(&file, length)?;
    drop(Clearing::start(&file, length, NonZeroUsize::MIN)?);
    Ok(file)
}

fn is_all(copied: u64, of: u64) -> bool {
    (of - OWN_WRITES..=of).contains(&copied)
}

#[test]
fn one_mmap_is_for_all_and_memcpy_moves_them_both_ways() -> Result<()> {
    let Locked {
        memcheck,
        process,
        file,
        length,
    } = Locked::with_file()?;
    let (pid, out) = (memcheck.pid(), into(file, length));
    let went = answered(&process, out, |_| Ok(driver().checkpoint(pid)?))?;
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
    let back = answered(&process, Transfer::In { contents }, |_| {
        Ok(driver().restore(pid, &GpuMap::identity())?)
    })?;
    println!("back: {back:?}");
    ensure!(is_all(back.reported.copied, asked), "{back:?}");
    driver().unlock(pid)?;
    assert_eq!(memcheck.ask()?, "ok 1");
    Ok(())
}

/// Returns a hash of each step of the contents, taken when the step is reported as filled.
fn follow(armed: &Armed, file: &File, is_over: &AtomicBool) -> Result<Vec<u64>> {
    let mut seen = Vec::new();
    loop {
        // Read before the report, so that steps filled at the end are hashed as well.
        let was_over = is_over.load(Ordering::Acquire);
        let filled = armed.reported()?.filled;
        while filled >= ((seen.len() + 1) * STEP) as u64 {
            seen.push(number(file, seen.len())?);
        }
        if was_over {
            return Ok(seen);
        }
        thread::sleep(Duration::from_micros(500));
    }
}

fn number(file: &File, step: usize) -> Result<u64> {
    let mut bytes = vec![0; STEP];
    file.read_exact_at(&mut bytes, (step * STEP) as u64)?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Checksums are taken behind the copy: a filled step must not change.
#[test]
fn what_is_filled_does_not_change() -> Result<()> {
    let Locked {
        memcheck,
        process,
        file,
        length,
    } = Locked::with_file()?;
    let (pid, out) = (memcheck.pid(), into(file.try_clone()?, length));
    let mut seen = Vec::new();
    let went = answered(&process, out, |armed| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let following = scope.spawn(|| follow(armed, &file, &is_over));
            let called = driver().checkpoint(pid);
            is_over.store(true, Ordering::Release);
            seen = following.join().expect("the thread panicked")?;
            Ok(called?)
        })
    })?;
    println!("{went:?}, {} steps followed", seen.len());
    ensure!(
        (seen.len() * STEP) as u64 >= 256 * MIB,
        "only {} steps were filled at the end",
        seen.len()
    );
    for (step, then) in seen.into_iter().enumerate() {
        ensure!(number(&file, step)? == then, "step {step} has changed");
    }
    let contents = went.contents.context("it has asked for no memory")?;
    answered(&process, Transfer::In { contents }, |_| {
        Ok(driver().restore(pid, &GpuMap::identity())?)
    })?;
    driver().unlock(pid)?;
    assert_eq!(memcheck.ask()?, "ok 1");
    Ok(())
}
