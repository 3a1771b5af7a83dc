//! The calls of CRIU's CUDA plugin, in its order.

use std::fs;

use anyhow::{Context, Result};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::StasisHost;

use super::{counts_on, fails, pid, stdout, succeeds};

/// The calls of CRIU's plugin, in its order: the lock while the process runs, all others with its
/// threads stopped except, while the driver works, the restore thread.
pub(crate) fn criu_s_plugin_gets_what_it_asks_for(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    let pid = pid(counter)?;
    assert!(stdout(stasis, &["-h"])?.contains("--action"));
    let restore_thread = stdout(stasis, &["--get-restore-tid", "--pid", &pid])?;
    let number: u32 = restore_thread.trim().parse()?;
    assert_eq!(restore_thread, format!("{number}\n"));
    // The plugin asks for the state of that thread.
    let thread = restore_thread.trim();
    assert_eq!(
        stdout(stasis, &["--get-state", "--pid", thread])?,
        "running\n"
    );
    let lock = ["--action", "lock", "--pid", &pid, "--timeout", "10000"];
    succeeds(stasis, &lock)?;

    let process = stasis.host.outside(&pid)?;
    let mut of_the_driver = None;
    let mut stopped = Traced::default();
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let task = Pid::from_raw(name.parse()?);
        ptrace::seize(task, ptrace::Options::empty())?;
        stop(task)?;
        let status = fs::read_to_string(path.join("status"))?;
        // Other lines may have the same number: a stack has 132 kB.
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        if numbers.is_some_and(|numbers| numbers.split_whitespace().any(|one| one == thread)) {
            of_the_driver = Some(task);
        }
        stopped.0.push(task);
    }
    let of_the_driver = of_the_driver.context("the restore thread is not to be seen")?;
    assert!(stopped.0.len() > 1);
    assert_eq!(
        stdout(stasis, &["--get-restore-tid", "--pid", &pid])?,
        restore_thread
    );
    let checkpoint = ["--action", "checkpoint", "--pid", &pid];
    fails(
        stasis,
        &checkpoint,
        &["restore thread", "stopped by a tracer"],
    )?;
    for actions in [["checkpoint"].as_slice(), &["restore", "unlock"]] {
        ptrace::cont(of_the_driver, None)?;
        for action in actions {
            succeeds(stasis, &["--action", action, "--pid", &pid])?;
        }
        stop(of_the_driver)?;
    }
    for task in std::mem::take(&mut stopped.0) {
        ptrace::detach(task, None)?;
    }
    counts_on(stasis)
}

/// Traced threads: a test that fails meanwhile must not keep them, or their process never ends.
#[derive(Default)]
struct Traced(Vec<Pid>);

impl Drop for Traced {
    fn drop(&mut self) {
        for task in &self.0 {
            if ptrace::detach(*task, None).is_err() && stop(*task).is_ok() {
                let _ = ptrace::detach(*task, None);
            }
        }
    }
}

fn stop(task: Pid) -> Result<()> {
    ptrace::interrupt(task)?;
    waitpid(task, Some(WaitPidFlag::__WALL))?;
    Ok(())
}
