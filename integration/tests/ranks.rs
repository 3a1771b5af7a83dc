//! Processes that wait for each other on their GPUs, as the ranks of a distributed training do: they can only be locked together.

use anyhow::{Context, Result, ensure};
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

#[test]
fn on_hybrid_cgroups() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?)
}

#[test]
fn on_cgroups_v2() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::V2, "runc")?)
}

fn all_cases(lab: &Lab) -> Result<()> {
    let _containerd = lab.containerd()?;
    lab.order("gpus 2")?;
    ranks_go_on_through_five_cycles(lab, "in-step", &["3"])?;
    ranks_go_on_through_five_cycles(lab, "ahead", &["3", "ahead=15"])?;
    ranks_that_share_gpu_memory_would_be_lost(lab)
}

/// Three ranks on two GPUs that meet all the time: the meetings go on, each with all of them.
fn ranks_go_on_through_five_cycles(lab: &Lab, name: &str, how: &[&str]) -> Result<()> {
    let command = [&["/bin/ranks", "10000"], how].concat();
    let ranks = Bundle::make(lab, name, &command)?;
    ranks.give(&[0, 1])?;
    ranks.run()?;
    let mut met = meetings(&lab.ask_until_up(10000)?)?;
    for cycle in 1..=5 {
        ranks.checkpoint("image", &["--leave-running"])?;
        let after = meetings(&lab.ask(10000)?.unwrap_or_default()).context("left running")?;
        assert!(after > met, "cycle {cycle}: {after} after {met}");
        ranks.checkpoint("image", &[])?;
        ranks.restore("image")?;
        let restored = meetings(&lab.ask(10000)?.unwrap_or_default()).context("restored")?;
        assert!(restored > after, "cycle {cycle}: {restored} after {after}");
        met = restored;
    }
    ranks.delete()
}

/// What the pre-flight protects from: the driver saves such a job and cannot restore it.
fn ranks_that_share_gpu_memory_would_be_lost(lab: &Lab) -> Result<()> {
    let command = ["/bin/ranks", "10001", "2", "p2p", "nccl=/bin/pause"];
    let job = Bundle::make(lab, "job", &command)?;
    job.give(&[0, 1])?;
    job.run()?;
    let met = meetings(&lab.ask_until_up(10001)?)?;
    let said = job.checkpoint_fails("refused", &[])?;
    for part in ["nccl-p2p", "NCCL_P2P_DISABLE=1", "nothing was changed"] {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
    assert!(meetings(&lab.ask(10001)?.unwrap_or_default())? > met);

    lab.set("runc", "preflight.allow = [\"nccl-p2p\"]\n")?;
    let said = job.checkpoint_fails("allowed", &["--leave-running"])?;
    assert!(
        said.contains("(801)") && said.contains("have to be killed"),
        "{said}"
    );
    let notes = lab.operation("checkpoint")?["notes"].to_string();
    assert!(notes.contains("allowed nccl-p2p"), "{notes}");
    lab.set("runc", "")?;
    job.delete()
}

/// "ok RANKS MEETINGS CHECKSUM"
fn meetings(answer: &str) -> Result<u64> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    ensure!(words.first() == Some(&"ok"), "the ranks say {answer:?}");
    Ok(words.get(2).context("no number of meetings")?.parse()?)
}
