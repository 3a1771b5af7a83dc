//! Checkpoints that leave the container running, or paused.

use std::fs;

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::installed::StasisHost;

use super::{EXEC_PORT, answers, counters, notes};

const SEEN: &str = "/run/seen";

pub(crate) fn left_running_both_go_on(stasis: &StasisHost) -> Result<()> {
    let job = counters(stasis, "left")?;
    for (fault, part) in [
        ("checkpoint session error:801 1", "801"),
        ("checkpoint left error:801 1", "801"),
        ("restore session error:801 1", ""),
    ] {
        let before = stasis.ask(EXEC_PORT)?.context("the session is silent")?;
        stasis.inject(fault)?;
        if part.is_empty() {
            // The GPU restore can be retried, and is.
            job.checkpoint_fails("failed", &["--leave-running"])?;
        } else {
            assert_contains(
                &job.checkpoint_fails("failed", &[])?,
                &[part, "with its GPU"],
            );
        }
        let next = (before.parse::<u32>()? + 1).to_string();
        assert_eq!(stasis.ask(EXEC_PORT)?, Some(next), "after {fault}");
    }
    stasis.inject("")?;
    job.before_criu("exit 1", "")?;
    job.checkpoint_fails("failed", &[])?;
    answers(stasis, "102", Some("108"))?;

    let on_gpu = format!("ls -l /proc/*/fd 2>/dev/null | grep -c /dev/nvidia >{SEEN}; true");
    job.before_criu(&on_gpu, "")?;
    job.checkpoint("left", &["--leave-running"])?;
    let seen = fs::read_to_string(stasis.path(SEEN))?;
    assert_eq!(seen.trim(), "0", "on the GPU while CRIU dumps");
    assert_contains(
        &notes(stasis)?,
        &["(counter) was started by exec", "goes on"],
    );
    assert_eq!(job.status()?, "running");
    answers(stasis, "103", Some("109"))?;
    job.delete()?;
    job.restore("left")?;
    answers(stasis, "103", None)?;
    job.delete()
}

/// As containerd does: processes of exec sessions are on the GPU again after `resume`, too.
pub(crate) fn a_paused_container_gets_both_back(stasis: &StasisHost) -> Result<()> {
    let job = counters(stasis, "paused")?;
    job.pause()?;
    job.checkpoint("paused", &["--leave-running"])?;
    assert_eq!(stasis.gpu_processes()?, 0);
    job.resume()?;
    answers(stasis, "102", Some("102"))?;
    job.delete()?;
    if stasis.low_level == "crun" {
        // A container that crun restores from a paused one's image is frozen (version 1), and does
        // not answer the driver.
        return Ok(());
    }
    job.restore("paused")?;
    answers(stasis, "102", None)?;
    job.delete()
}
