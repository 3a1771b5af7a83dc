//! The machine's memory: kept warm, and watched.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// What the kernel needs to go on while all else is taken.
const LEFT_FREE: u64 = 1 << 30;

/// Holds all free memory for a moment, touched, and lets go of it: whoever takes some next gets
/// what the machine still has. Less is not enough: the kernel would hand out what its host has
/// taken back. In huge pages: whoever takes those would find none that are whole.
pub(crate) fn warm() -> Result<()> {
    let bytes = field("MemFree:")?.saturating_sub(LEFT_FREE);
    let script =
        "mount -t tmpfs -o size=100%,huge=always tmpfs /mnt && head -c \"$1\" /dev/zero >/mnt/pool";
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "warm", &bytes.to_string()])
        .status()?;
    ensure!(status.success(), "memory could not be warmed: {status}");
    Ok(())
}

/// What could be had without taking it from anybody, bytes.
pub(crate) fn available() -> Result<u64> {
    field("MemAvailable:")
}

fn field(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number
        .context("the kernel tells nothing of its memory")?
        .parse::<u64>()?
        * 1024)
}

/// Of processes, and of files in memory. What is free says less: it changes with what the kernel
/// tells its host.
fn in_use() -> Result<u64> {
    Ok(field("AnonPages:")? + field("Shmem:")?)
}

/// How much more of the machine's memory was in use at most while something was done.
pub(crate) fn growth_during<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let before = in_use()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = before;
            while !over.load(Ordering::Relaxed) {
                most = most.max(in_use().unwrap_or(most));
                std::thread::sleep(Duration::from_millis(10));
            }
            most
        });
        let done = act();
        over.store(true, Ordering::Relaxed);
        let most = watcher.join().ok().context("the watcher panicked")?;
        Ok((done?, most - before))
    })
}
