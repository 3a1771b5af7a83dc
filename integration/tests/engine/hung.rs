//! runc or CRIU that another program has stopped: it is ended after `deadlines.stalled_s`, the
//! operation is undone, and the message names the hung program.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::on_hosts;

const PORT: u16 = 10250;
/// A runc that stops at the verb in the file.
const STOPPING: &str = "/usr/local/bin/stopping-runc";
const VERB: &str = "/run/stop-at";
/// A runc that waits at a checkpoint.
const HANGING: &str = "/usr/local/bin/hanging-runc";
/// The engine, whose CRIU gets the fault from the file.
const FAULTY: &str = "/usr/local/bin/faulty-stasis-runtime";
const FAULT: &str = "/run/memory-fault";
/// The driver and CRIU move the GPU contents.
const BY_DRIVER: &str = "gpu_checkpoint.path = \"driver\"\n";

on_hosts!(all_cases: sid, trixie_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let stops = format!(
        "#!/bin/sh\nfor word; do [ \"$word\" = \"$(cat {VERB})\" ] && kill -STOP $$; done\n\
         exec runc \"$@\"\n"
    );
    let faulty = format!("#!/bin/sh\nSTASIS_MEMORY_FAULT=$(cat {FAULT}) exec {RUNTIME} \"$@\"\n");
    // It waits for a program as CRIU waits for one that its script runs.
    let hangs = "#!/bin/sh\nfor word; do [ \"$word\" = checkpoint ] && sh -c 'sleep 600; :'; done\n\
                 exec runc \"$@\"\n";
    for (program, script) in [(STOPPING, stops), (FAULTY, faulty), (HANGING, hangs.into())] {
        stasis.script(program, &script)?;
    }
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "64", "10250"])?.through(FAULTY);
    let here = &Hung { stasis, job: &job };
    here.nothing_stops()?;
    job.comes_up(PORT, "ok 0")?;
    let cases: [(&str, Case); 6] = [
        ("runc, checkpoint", runc_in_a_checkpoint),
        ("criu, checkpoint", criu_in_a_checkpoint),
        ("runc, killed checkpoint", runc_in_a_killed_checkpoint),
        ("runc, resume", runc_in_a_resume),
        ("runc, restore", runc_in_a_restore),
        ("criu, restore", criu_in_a_restore),
    ];
    for (count, (name, case)) in cases.into_iter().enumerate() {
        case(here).context(name)?;
        here.nothing_stops()?;
        here.nothing_is_left().context(name)?;
        let answer = stasis.ask_until_up(PORT).context(name)?;
        assert_eq!(answer, format!("ok {}", count + 1), "{name}");
    }
    job.delete()
}

type Case = fn(&Hung<'_>) -> Result<()>;

struct Hung<'l> {
    stasis: &'l StasisHost,
    job: &'l Bundle<'l>,
}

impl Hung<'_> {
    fn stops(&self, verb: &str, fault: &str) -> Result<()> {
        self.stasis.write(VERB, verb)?;
        self.stasis.write(FAULT, fault)?;
        self.set("deadlines.stalled_s = 3\n", BY_DRIVER)
    }

    fn nothing_stops(&self) -> Result<()> {
        self.stasis.write(VERB, "")?;
        self.stasis.write(FAULT, "")?;
        self.set("", BY_DRIVER)
    }

    fn set(&self, deadline: &str, path: &str) -> Result<()> {
        let settings = format!("runtime.flavor = \"runc\"\n{deadline}{path}");
        self.stasis.set(STOPPING, &settings)
    }

    fn says(&self, state: State, parts: &[&str]) -> Result<()> {
        let failure = self.job.failure()?.context("no failure")?;
        assert_eq!(
            (failure.kind, failure.state),
            (Some(Kind::Hung), Some(state))
        );
        assert_contains(&failure.message, &["it hung, and was ended after"]);
        assert_contains(&failure.message, parts);
        Ok(())
    }

    fn nothing_is_left(&self) -> Result<()> {
        self.stasis.no_criu()?;
        self.stasis.nothing_to_put_right()
    }

    fn good_image(&self) -> Result<()> {
        self.nothing_stops()?;
        self.job.checkpoint("good", &[])?;
        self.job.delete()
    }
}

fn runc_in_a_checkpoint(here: &Hung<'_>) -> Result<()> {
    here.stops("checkpoint", "")?;
    here.job.checkpoint_fails("failed", &[])?;
    let parts = [
        "(stopping-runc) was stopped",
        "runs on as before, with its GPU",
    ];
    here.says(State::Unharmed, &parts)
}

/// While GPU contents are away from the tasks.
fn criu_in_a_checkpoint(here: &Hung<'_>) -> Result<()> {
    here.stops("", "dump:1:stop")?;
    here.set("deadlines.stalled_s = 3\n", "")?;
    here.job.checkpoint_fails("failed", &["--leave-running"])?;
    let parts = ["(criu) was stopped", "runs on as before, with its GPU"];
    here.says(State::Unharmed, &parts)
}

/// Its keeper waits for the dump, and ends it as well. The kernel would send SIGHUP to one that is
/// stopped, since its process group is orphaned.
fn runc_in_a_killed_checkpoint(here: &Hung<'_>) -> Result<()> {
    let host = &here.stasis.host;
    let settings = format!("runtime.flavor = \"runc\"\ndeadlines.stalled_s = 3\n{BY_DRIVER}");
    here.stasis.set(HANGING, &settings)?;
    let mut checkpoint = here.job.begin_checkpoint("killed", &["--leave-running"])?;
    let hangs = descendant(&checkpoint, "sleep")?;
    hangs.context("runc does not hang")?;
    let engine = descendant(&checkpoint, "stasis-runtime")?.context("it is over")?;
    kill(engine, Signal::SIGKILL)?;
    checkpoint.wait()?;
    wait_until_clear(|| {
        let there = host.run_for_text(&["pgrep", "-x", "sleep"]);
        Ok(there.ok().filter(|there| !there.is_empty()))
    })
}

fn runc_in_a_resume(here: &Hung<'_>) -> Result<()> {
    here.job.pause()?;
    here.job.checkpoint("paused", &["--leave-running"])?;
    here.stops("resume", "")?;
    assert!(here.job.resume().is_err());
    here.says(State::Paused, &["was stopped", "still paused"])?;
    here.nothing_stops()?;
    here.job.resume()
}

fn runc_in_a_restore(here: &Hung<'_>) -> Result<()> {
    here.good_image()?;
    here.stops("restore", "")?;
    here.job.restore_fails("good")?;
    here.says(State::Ended, &["(stopping-runc) was stopped"])?;
    here.nothing_stops()?;
    here.job.restore("good")
}

fn criu_in_a_restore(here: &Hung<'_>) -> Result<()> {
    here.good_image()?;
    here.stops("", "restore:1:stop")?;
    here.job.restore_fails("good")?;
    here.says(State::Ended, &["(criu) was stopped"])?;
    here.nothing_stops()?;
    here.job.restore("good")
}
