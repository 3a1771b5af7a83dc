//! Processes that wait for each other on their GPUs, as the ranks of a distributed training do:
//! they can only be locked together.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// On a busy machine the ranks need longer to meet than the default lets them take to be locked.
const PATIENT: &str = "deadlines.lock_ms = 60000\n";

on_hosts!(all_cases: sid, trixie_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 2")?;
    stasis.set("runc", PATIENT)?;
    ranks_go_on_through_five_cycles(stasis, "in-step", &["3"])?;
    ranks_go_on_through_five_cycles(stasis, "ahead", &["3", "ahead=15"])?;
    ranks_that_share_gpu_memory_would_be_lost(stasis)
}

/// Three ranks on two GPUs that meet all the time: the meetings go on, each with all of them.
fn ranks_go_on_through_five_cycles(stasis: &StasisHost, name: &str, how: &[&str]) -> Result<()> {
    let command = [&["/bin/ranks", "10000"], how].concat();
    let ranks = Bundle::make(stasis, name, &command)?;
    ranks.give(&[0, 1])?;
    ranks.run()?;
    let mut met = meetings(&stasis.ask_until_up(10000)?)?;
    for cycle in 1..=5 {
        ranks.checkpoint("image", &["--leave-running"])?;
        let after = meetings(&stasis.ask(10000)?.unwrap_or_default()).context("left running")?;
        assert!(after > met, "cycle {cycle}: {after} after {met}");
        ranks.checkpoint("image", &[])?;
        ranks.restore("image")?;
        let restored = meetings(&stasis.ask(10000)?.unwrap_or_default()).context("restored")?;
        assert!(restored > after, "cycle {cycle}: {restored} after {after}");
        met = restored;
    }
    ranks.delete()
}

/// What the pre-flight protects from: the driver saves such a job and cannot restore it.
fn ranks_that_share_gpu_memory_would_be_lost(stasis: &StasisHost) -> Result<()> {
    let command = ["/bin/ranks", "10001", "2", "p2p", "nccl=/bin/pause"];
    let job = Bundle::make(stasis, "job", &command)?;
    job.give(&[0, 1])?;
    job.run()?;
    let met = meetings(&stasis.ask_until_up(10001)?)?;
    let message = job.checkpoint_fails("refused", &[])?;
    assert_contains(
        &message,
        &["nccl-p2p", "NCCL_P2P_DISABLE=1", "nothing was changed"],
    );
    assert!(meetings(&stasis.ask(10001)?.unwrap_or_default())? > met);

    stasis.set(
        "runc",
        &format!("{PATIENT}preflight.allow = [\"nccl-p2p\"]\n"),
    )?;
    let message = job.checkpoint_fails("allowed", &["--leave-running"])?;
    assert!(
        message.contains("(801)") && message.contains("have to be killed"),
        "{message}"
    );
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert!(notes.contains("allowed nccl-p2p"), "{notes}");
    stasis.set("runc", "")?;
    job.delete()
}

/// "ok RANKS MEETINGS CHECKSUM"
fn meetings(answer: &str) -> Result<u64> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    ensure!(words.first() == Some(&"ok"), "the ranks say {answer:?}");
    Ok(words.get(2).context("no number of meetings")?.parse()?)
}
