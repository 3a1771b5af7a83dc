//! A GPU that is not in persistence mode: the driver restores nothing to it once no process uses it
//! (CUDA_ERROR_NOT_PERMITTED), which changes nothing and can be retried.

use anyhow::{Context, Result};
use stasis_engine::error::kind::State;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10240;

on_hosts!(all_cases: sid, trixie_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let counter = &Bundle::make(stasis, "counter", &["/bin/counter", "10240"])?;
    counter.comes_up(PORT, "101")?;
    checkpoints_are_refused(stasis, counter).context("refused")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("102"));
    a_restore_is_tried_again(stasis, counter).context("left running")?;
    assert_eq!(stasis.ask_until_up(PORT)?, "103");
    a_rollback_is_tried_again(stasis, counter).context("roll-back")?;
    assert_eq!(stasis.ask_until_up(PORT)?, "104");
    counter.checkpoint("good", &[])?;
    counter.restore("good")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("105"));
    counter.delete()
}

fn checkpoints_are_refused(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<()> {
    stasis.inject("persistence-off 0")?;
    let message = counter.checkpoint_fails("refused", &["--leave-running"])?;
    let parts = [
        "refused [blocked]",
        "persistence: ",
        "is not in persistence mode",
        "nvidia-smi -pm 1",
        "restore.persistence = \"ignore\"",
        "nothing was changed",
    ];
    assert_contains(&message, &parts);
    assert_eq!(stasis.records()?, "");
    stasis.inject("")
}

/// The image is written, and the process cannot go on yet.
fn a_restore_is_tried_again(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<()> {
    stasis.inject("restore * error:800")?;
    let message = counter.checkpoint_fails("image", &["--leave-running"])?;
    let parts = ["gpu restore of process", "the image is complete"];
    assert_contains(&message, &parts);
    is_tried_again(stasis, counter, &message)
}

fn a_rollback_is_tried_again(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<()> {
    const FAILING: &str = "/usr/local/bin/failing-runc";
    const SCRIPT: &str =
        "#!/bin/sh\ncase \" $* \" in *\" checkpoint \"*) exit 1;; esac\nexec runc \"$@\"\n";
    stasis.script(FAILING, SCRIPT)?;
    stasis.set(FAILING, "runtime.flavor = \"runc\"\n")?;
    stasis.inject("restore * error:800")?;
    let message = counter.checkpoint_fails("none", &[])?;
    stasis.set("runc", "")?;
    assert_contains(&message, &["failing-runc checkpoint ended with"]);
    is_tried_again(stasis, counter, &message)
}

/// No process is reported lost, and once the GPU is initialised the process goes on by itself.
fn is_tried_again(stasis: &StasisHost, counter: &Bundle<'_>, message: &str) -> Result<()> {
    let parts = ["(800)", "nvidia-smi -pm 1", "tries again"];
    assert_contains(message, &parts);
    let failure = counter.failure()?.context("no failure")?;
    assert_eq!(failure.state, Some(State::Waiting));
    stasis.inject("")?;
    wait_until_clear(|| {
        let keepers = stasis.keepers();
        Ok((!keepers.is_empty()).then_some(keepers))
    })?;
    assert_eq!(stasis.records()?, "");
    Ok(())
}
