//! Images of paused containers: a restored one runs, with its GPU, whatever the low-level runtime
//! and CRIU do with the freezer. A process that cannot be ended is named.

use std::process::Command;

use anyhow::{Context, Result};
use stasis_engine::error::kind::State;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

on_hosts!(all_cases: trixie, sid_v2, crun_on_trixie, crun_on_sid_hybrid);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let gpu = ["/bin/counter", "10000"];
    runs_after_its_restore(stasis, "gpu", &gpu, "102").context("gpu")?;
    let both = ["/bin/memcheck", "48"];
    runs_after_its_restore(stasis, "memory", &both, "ok 1").context("memory")?;
    a_failed_restore_leaves_nothing(stasis)
}

fn paused<'l>(stasis: &'l StasisHost, id: &str, command: &[&str]) -> Result<Bundle<'l>> {
    let job = Bundle::make(stasis, id, command)?;
    job.suit_crun()?;
    job.run()?;
    stasis.ask_until_up(10000)?;
    job.pause()?;
    job.checkpoint("paused", &["--leave-running"])?;
    assert_eq!(job.status()?, "paused");
    job.resume()?;
    Ok(job)
}

fn runs_after_its_restore(
    stasis: &StasisHost,
    id: &str,
    command: &[&str],
    answer: &str,
) -> Result<()> {
    let job = paused(stasis, id, command)?;
    job.delete()?;
    for _ in 0..2 {
        job.restore("paused")?;
        assert_eq!(job.status()?, "running");
        assert_eq!(stasis.ask(10000)?.as_deref(), Some(answer));
        job.delete()?;
    }
    Ok(())
}

/// The driver refuses to restore the GPU state.
fn a_failed_restore_leaves_nothing(stasis: &StasisHost) -> Result<()> {
    let job = paused(stasis, "failed", &["/bin/counter", "10000"])?;
    job.delete()?;
    stasis.inject("restore failed error:2")?;
    let said = job.restore_fails("paused")?;
    assert!(said.contains("what had been restored was ended"), "{said}");
    assert_eq!(stasis.gpu_processes()?, 0, "{said}");
    assert!(stasis.is_silent(10000)?);
    stasis.inject("")?;
    job.restore("paused")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    job.delete()
}

mod held {
    stasis_integration::on_hosts!(super::one_that_a_freezer_holds_is_named: crun_on_sid_v2);
}

/// Thaws, when dropped, the machine's version 1 cgroups of a host that sees version 2 alone.
struct ThawedAtTheEnd<'l>(&'l StasisHost);

impl Drop for ThawedAtTheEnd<'_> {
    fn drop(&mut self) {
        let below = format!("/sys/fs/cgroup/*/{}/*", self.0.host.name());
        let find = ["/sys/fs/cgroup", "-name", "freezer.state", "-path", &below];
        let thaw = [
            "-exec",
            "sh",
            "-c",
            "echo THAWED >\"$1\"",
            "thaw",
            "{}",
            ";",
        ];
        let _ = Command::new("find").args(find).args(thaw).status();
    }
}

/// CRIU makes a cgroup in the machine's freezer of version 1, which this host does not see, and
/// freezes it as the container was at its checkpoint.
fn one_that_a_freezer_holds_is_named(kind: HostKind) -> Result<()> {
    needs!(HybridCgroups);
    let stasis = &StasisHost::with_containerd(kind)?;
    let thawed = ThawedAtTheEnd(stasis);
    let job = paused(stasis, "held", &["/bin/counter", "10000"])?;
    job.delete()?;
    assert!(job.restore("paused").is_err(), "the driver got an answer");
    let failure = job.failure()?.context("nothing was reported")?;
    assert_eq!(failure.state, Some(State::Lost), "{}", failure.message);
    assert!(
        failure.message.contains("has not ended"),
        "{}",
        failure.message
    );
    // Its rest is removed as soon as possible, without a further call.
    let tells = ["sh", "-c", "stasis recover || true"];
    let told = stasis.run_for_text(&tells)?;
    assert_contains(&told, &["held", "a restore was killed"]);
    drop(thawed);
    stasis.nothing_to_put_right()?;
    assert_eq!(job.status()?, "", "it is still there");
    stasis.no_container_left_of(&["held"])
}
