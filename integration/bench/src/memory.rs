//! The machine's memory: kept warm.
//!
//! Memory that a virtual machine gives back to its host costs ten times as much when it is touched
//! again as memory that it still has.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Bytes that the kernel needs while all other memory is taken.
const LEFT_FREE: u64 = 1 << 30;

/// Touches all free memory and frees it, so that the next allocation gets memory that the machine
/// still has. Less is not enough: the kernel would hand out memory that its host has taken back. In
/// huge pages: otherwise a user of those would find none that are whole.
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

fn field(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number
        .context("the kernel tells nothing of its memory")?
        .parse::<u64>()?
        * 1024)
}
