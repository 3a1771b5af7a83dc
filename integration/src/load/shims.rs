//! The resources that the shims of a host hold.

use std::fs;

use anyhow::{Context, Result};

use crate::check::wait::wait_until_clear;
use crate::host::installed::StasisHost;

/// All shims of a program, together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shims {
    /// Their number.
    pub count: usize,
    /// Open files.
    pub files: usize,
    /// Threads.
    pub threads: usize,
    /// Resident memory, in KiB.
    pub resident: usize,
}

impl Shims {
    pub(super) fn measure(stasis: &StasisHost, program: &str) -> Result<Self> {
        let mut all = Self::default();
        for shim in stasis.shims_of(program)? {
            let process = stasis.path(format!("/proc/{shim}"));
            let status = fs::read_to_string(process.join("status"))?;
            all.count += 1;
            all.files += fs::read_dir(process.join("fd"))?.count();
            all.threads += number(&status, "Threads:")?;
            all.resident += number(&status, "VmRSS:")?;
        }
        Ok(all)
    }

    /// Waits until they hold no more files and threads than before: those of a call end after its
    /// answer.
    pub(super) fn settled(stasis: &StasisHost, program: &str, before: &Self) -> Result<Self> {
        let mut now = Self::default();
        // containerd's own keeps some for its next call; then the last measurement counts.
        let _ = wait_until_clear(|| {
            now = Self::measure(stasis, program)?;
            let has_more = now.files > before.files || now.threads > before.threads;
            Ok(has_more.then(|| format!("{now:?}, and {before:?} before")))
        });
        Ok(now)
    }
}

fn number(status: &str, name: &str) -> Result<usize> {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    let number = found.and_then(|rest| rest.split_whitespace().next());
    Ok(number.context("a line of /proc/PID/status")?.parse()?)
}
