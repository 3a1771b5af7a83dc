//! Events between the stop at one host and the create at another.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::docker_registry::BLOBS;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::host::{Daemon, Host, HostKind};

use super::preempted::{SETTINGS, asked, asks_for, begin, ended, job};
use super::{host_at, host_for_registry, with_registry};

/// The host where the job is stopped, and the one where it goes on, or does not.
struct Pair<'h> {
    registry: &'h Host,
    from: (&'h StasisHost, &'h Bundle<'h>),
    to: (&'h StasisHost, &'h Bundle<'h>),
}

type Case = fn(&Pair<'_>) -> Result<()>;

#[test]
fn no_job_goes_back_in_time_and_none_is_lost() -> Result<()> {
    let registry = host_for_registry()?;
    let (network, mut daemon) = with_registry(&registry)?;
    let from = host_at(HostKind::sid()?, &registry, &network, 2)?;
    let to = host_at(HostKind::sid()?, &registry, &network, 3)?;
    let _daemons = (from.containerd()?, to.containerd()?);
    let pair = Pair {
        registry: &registry,
        from: (&from, &job(&from, "none")?),
        to: (&to, &job(&to, "none")?),
    };
    let cases: [(&str, &str, Case); 6] = [
        (
            "failed",
            "",
            a_checkpoint_that_fails_gives_the_earlier_one_back,
        ),
        ("killed", "", who_is_killed_leaves_it_to_who_pushes),
        ("lost", WAITS, what_a_lost_host_was_to_push_is_left_behind),
        ("slow", "", what_is_not_there_in_time_is_not_gone_back_from),
        ("pushed", "", what_is_still_pushed_is_not_gone_back_from),
        ("damaged", "", what_is_damaged_there_is_passed_over),
    ];
    for (name, waits, case) in cases {
        pair.is_asked_for(name, waits)?;
        pair.first_image().context(name)?;
        case(&pair).context(name)?;
        pair.settled().context(name)?;
    }
    pair.is_asked_for("away", WAITS)?;
    pair.first_image()?;
    daemon = the_registry_is_away_for_a_while(&pair, daemon).context("away")?;
    pair.settled()?;
    drop(daemon);
    what_is_no_repository_is_refused(&pair)
}

impl Pair<'_> {
    /// Gives both jobs this key, and their hosts these settings in addition to the usual ones.
    fn is_asked_for(&self, key: &str, waits: &str) -> Result<()> {
        for (host, job) in [self.from, self.to] {
            host.set(&host.low_level, &format!("{SETTINGS}{waits}"))?;
            asks_for(job, key)?;
        }
        Ok(())
    }

    /// Puts an image of a job that was asked once into the registry; the job runs again at its
    /// host, and is asked once more.
    fn first_image(&self) -> Result<()> {
        let (host, job) = self.from;
        begin(job)?;
        asked(host, 0)?;
        job.kill("TERM")?;
        ended(host, job)?;
        nothing_is_pushed(host)?;
        begin(job)?;
        asked(host, 1)
    }

    /// Checks that the job goes on at the other host, where it is asked, and removes it.
    fn goes_on(&self, before: u32) -> Result<()> {
        let (host, job) = self.to;
        begin(job)?;
        asked(host, before)?;
        job.delete()
    }

    fn starts_cold(&self, why: &str) -> Result<()> {
        let (host, job) = self.to;
        job.create()?;
        assert_contains(&job.warnings()?, &["started cold", why]);
        assert_contains(&host.operation("create")?["notes"].to_string(), &[why]);
        job.delete()
    }

    fn settled(&self) -> Result<()> {
        for (host, job) in [self.from, self.to] {
            job.delete()?;
            host.inject("")?;
            nothing_is_pushed(host)?;
            host.nothing_to_put_right()?;
        }
        Ok(())
    }
}

/// The stall limit; an announcement holds for half of it.
const WAITS: &str = "deadlines.stalled_s = 16\n";

/// Waits until no process pushes, and no image is left to be pushed.
pub(super) fn nothing_is_pushed(host: &StasisHost) -> Result<()> {
    wait_until_clear(|| {
        let noted = "[ ! -e /images/.to-push ] || find /images/.to-push -type f";
        let left = host.run_for_text(&["sh", "-c", noted])? + &pushing(host)?;
        Ok((!left.is_empty()).then_some(left))
    })
}

/// Returns the pids of processes that push. pgrep(1) exits with 1 if there are none.
fn pushing(host: &StasisHost) -> Result<String> {
    let script = "pgrep -x stasis-push || [ $? = 1 ]";
    host.host.run_for_text(&["sh", "-c", script])
}

fn a_checkpoint_that_fails_gives_the_earlier_one_back(pair: &Pair<'_>) -> Result<()> {
    let (host, job) = pair.from;
    host.inject("checkpoint job error:801 1")?;
    job.kill("TERM")?;
    host.nobody_is_stopped()?;
    assert_contains(&host.operation("stop")?["notes"].to_string(), &["801"]);
    nothing_is_pushed(host)?;
    pair.goes_on(1)
}

/// The process that handles the stop is killed, and its checkpoint goes on.
fn who_is_killed_leaves_it_to_who_pushes(pair: &Pair<'_>) -> Result<()> {
    let (host, job) = pair.from;
    host.hold_driver("checkpoint job", "killed")?;
    job.kill("TERM")?;
    host.until_driver_is_called()?;
    host.run(&["pkill", "-KILL", "-x", "stasis-stop"])?;
    host.let_driver_go("killed")?;
    pair.goes_on(2)?;
    ended(host, job)
}

/// The lost host's announcement expires, and the job goes on elsewhere with the earlier image. When
/// the host is back, its image is pushed to no one.
fn what_a_lost_host_was_to_push_is_left_behind(pair: &Pair<'_>) -> Result<()> {
    let (host, job) = pair.from;
    host.hold_driver("checkpoint job", "lost")?;
    job.kill("TERM")?;
    host.until_driver_is_called()?;
    host.run(&["pkill", "-KILL", "-x", "stasis-push"])?;
    host.run(&["pkill", "-KILL", "-x", "stasis-stop"])?;
    let (other, next) = pair.to;
    begin(next)?;
    asked(other, 1)?;
    next.kill("TERM")?;
    ended(other, next)?;
    nothing_is_pushed(other)?;
    host.let_driver_go("lost")?;
    ended(host, job)?;
    begin(job)?;
    asked(host, 2)?;
    nothing_is_pushed(host)?;
    let notes = host.operation("push")?["notes"].to_string();
    assert_contains(&notes, &["is not pushed", "the job has gone on"]);
    Ok(())
}

/// The announcement holds for a few seconds, and is renewed.
fn what_is_not_there_in_time_is_not_gone_back_from(pair: &Pair<'_>) -> Result<()> {
    let (host, job) = pair.from;
    let holds = format!("{SETTINGS}deadlines.stalled_s = 8\n");
    host.set(&host.low_level, &holds)?;
    host.hold_driver("checkpoint job", "slow")?;
    job.kill("TERM")?;
    host.until_driver_is_called()?;
    let (other, _) = pair.to;
    let short = format!("{SETTINGS}deadlines.stalled_s = 12\n");
    other.set(&other.low_level, &short)?;
    pair.starts_cold("is being made on")?;
    other.set(&other.low_level, SETTINGS)?;
    host.let_driver_go("slow")?;
    ended(host, job)?;
    pair.goes_on(2)
}

/// The push is held, and meanwhile the next life of the job is stopped, which makes no image.
fn what_is_still_pushed_is_not_gone_back_from(pair: &Pair<'_>) -> Result<()> {
    let (host, job) = pair.from;
    host.hold_driver("checkpoint job", "pushed")?;
    job.kill("TERM")?;
    host.until_driver_is_called()?;
    host.host.run(&["pkill", "-STOP", "-x", "stasis-push"])?;
    host.let_driver_go("pushed")?;
    ended(host, job)?;
    begin(job)?;
    asked(host, 2)?;
    host.inject("checkpoint job error:801 1")?;
    job.kill("TERM")?;
    host.nobody_is_stopped()?;
    wait_until_clear(|| Ok(Some(pushing(host)?).filter(|held| held.lines().count() > 1)))?;
    let (other, _) = pair.to;
    let short = format!("{SETTINGS}deadlines.stalled_s = 4\n");
    other.set(&other.low_level, &short)?;
    pair.starts_cold("is being made on")?;
    other.set(&other.low_level, SETTINGS)?;
    host.host.run(&["pkill", "-CONT", "-x", "stasis-push"])?;
    nothing_is_pushed(host)?;
    pair.goes_on(2)
}

/// The registry's disk damages all of the newest image, and an earlier one is here.
fn what_is_damaged_there_is_passed_over(pair: &Pair<'_>) -> Result<()> {
    let (other, next) = pair.to;
    begin(next)?;
    asked(other, 1)?;
    next.kill("TERM")?;
    ended(other, next)?;
    nothing_is_pushed(other)?;
    pair.registry.run(&["touch", "/run/before"])?;
    let (host, job) = pair.from;
    asked(host, 2)?;
    job.kill("TERM")?;
    ended(host, job)?;
    nothing_is_pushed(host)?;
    let damage = format!(
        "find {BLOBS} -name data -size +10k -newer /run/before | while read blob; do \
         printf damaged | dd of=$blob bs=1 seek=5000 conv=notrunc status=none; done"
    );
    pair.registry.run(&["sh", "-ec", &damage])?;
    begin(next)?;
    let notes = other.operation("create")?["notes"].to_string();
    assert_contains(&notes, &["is passed over"]);
    asked(other, 2)
}

/// The stop is not delayed, and the image is pushed once the registry is back: by `recover`, as at
/// boot, since the process that was to push it was killed.
fn the_registry_is_away_for_a_while<'h>(pair: &Pair<'h>, daemon: Daemon<'h>) -> Result<Daemon<'h>> {
    let (host, job) = pair.from;
    daemon.kill()?;
    job.kill("TERM")?;
    ended(host, job)?;
    host.nobody_is_stopped()?;
    let notes = host.operation("stop")?["notes"].to_string();
    assert_contains(&notes, &["the registry does not know"]);
    let images = host.run_for_text(&["ls", "/images/away"])?;
    ensure!(images.lines().count() == 2, "{images}");
    pair.starts_cold("registry.test:5443/jobs/away")?;
    host.run(&["pkill", "-KILL", "-x", "stasis-push"])?;
    host.run(&["cp", "-a", "/images/.to-push", "/root/to-push"])?;
    host.run(&[PROGRAM, "recover"])?;
    let daemon = pair.registry.docker_registry_again()?;
    nothing_is_pushed(host)?;
    let pushed = host.operation("push")?;
    ensure!(pushed.get("error").is_none(), "{pushed}");
    pair.goes_on(2)?;
    what_is_there_is_not_pushed_again(host)?;
    Ok(daemon)
}

/// The process that pushed the image was killed before it could record that. The image is
/// incomplete now, so it could not be pushed again.
fn what_is_there_is_not_pushed_again(host: &StasisHost) -> Result<()> {
    let script = "rm /images/away/*-stop/inventory.img; cp -a /root/to-push/. /images/.to-push/";
    host.run(&["sh", "-ec", script])?;
    host.run(&[PROGRAM, "recover"])?;
    nothing_is_pushed(host)?;
    let pushed = host.operation("push")?;
    ensure!(pushed.get("error").is_none(), "{pushed}");
    Ok(())
}

fn what_is_no_repository_is_refused(pair: &Pair<'_>) -> Result<()> {
    let (_, job) = pair.from;
    asks_for(job, "Upper")?;
    let refused = job.create().err().context("it was created")?;
    assert_contains(&refused.to_string(), &["jobs/Upper", "lower case"]);
    ensure!(job.status()?.is_empty());
    Ok(())
}
