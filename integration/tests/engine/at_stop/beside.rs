//! Another operation works on the container when it is stopped.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::StasisHost;

use super::killed::CHECKPOINT;
use super::{begin, ended, images, notes};

/// clock_nanosleep(2) in `/proc/PID/syscall`.
const SLEEPS: &str = "230 ";

/// A checkpoint that leaves the container running: the stop's own begins after it, and a third one
/// is refused at once. SIGKILL ends the container meanwhile, also if the other checkpoint hangs.
pub(super) fn it_waits_for_another_checkpoint(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    for end in ["KILL", "another"] {
        begin(stasis, job, "101")?;
        stasis.hold_driver("checkpoint job", "beside")?;
        let mut another = job.begin_checkpoint(end, &["--leave-running"])?;
        stasis.until_driver_is_called()?;
        job.kill("TERM")?;
        until_it_waits(stasis).context(end)?;
        assert_contains(&job.checkpoint_fails("third", &[])?, &["[busy]"]);
        if end == "KILL" {
            job.kill("KILL")?;
            ended(stasis, job)?;
            assert_contains(&notes(stasis)?.to_string(), &["ended before"]);
            assert_eq!(images(stasis, "keys/beside")?, 0);
            stasis.let_driver_go("beside")?;
            another.wait()?;
        } else {
            stasis.let_driver_go("beside")?;
            ensure!(another.wait()?.success(), "{:?}", job.message()?);
            ended(stasis, job)?;
        }
        job.delete()?;
        stasis.inject("")?;
    }
    assert_eq!(notes(stasis)?, Value::Null);
    assert_eq!(images(stasis, "keys/beside")?, 1);
    begin(stasis, job, "102")?;
    job.kill("KILL")?;
    job.delete()
}

/// Waits until the checkpoint of a stop has met the other operation: it sleeps between two looks.
fn until_it_waits(stasis: &StasisHost) -> Result<()> {
    let syscall = format!("cat /proc/$(pgrep -f '{CHECKPOINT}')/syscall");
    wait_until_clear(|| {
        let doing = stasis.run_for_text(&["bash", "-c", &syscall]);
        let doing = doing.unwrap_or_else(|error| format!("{error:#}"));
        Ok((!doing.starts_with(SLEEPS)).then(|| format!("{doing}; {:?}", notes_so_far(stasis))))
    })
}

/// Returns the notes of the stop, if it is over already.
fn notes_so_far(stasis: &StasisHost) -> Result<Value> {
    Ok(stasis.operation("stop")?["notes"].take())
}
