//! Hooks of containers: the program is notified before a checkpoint, and when it has its GPU again,
//! whichever process gives it back.

mod failing;
mod killed;
mod rights;
mod suspended;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

const PORT: u16 = 10000;
const BEFORE: &str = "io.stasis.hook.before-checkpoint";
const AFTER: &str = "io.stasis.hook.after-restore";
const TIMEOUT: &str = "io.stasis.hook.timeout";
/// The file of the container that a hanging hook has in its command line.
const HANGING: &str = "/hanging-hook";

/// Ends the process whose number is in a file, and waits until it has ended.
const END_IT: &str = "pid=$(cat /told); kill -9 $pid; while [ -e /proc/$pid/fd/0 ]; do :; done";

on_hosts!(all_cases: trixie, sid_v2, crun_on_sid_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let counter = Bundle::make(stasis, "counter", &["/bin/counter", "10000"])?;
    counter.suit_crun()?;
    let mut job = Job {
        stasis,
        counter: &counter,
        count: 100,
    };
    fs::write(job.in_container(HANGING), "")?;
    job.annotate(&[
        (BEFORE, "echo before >>/hooks"),
        (AFTER, "echo after >>/hooks"),
    ])?;
    counter.run()?;
    job.goes_on()?;
    for (name, case) in CASES {
        case(&mut job).context(name)?;
        job.goes_on().context(name)?;
    }
    counter.delete()?;
    what_is_in_the_way_is_removed(stasis)?;
    failing::of_the_last_cuda_process(stasis)?;
    without_cuda(stasis)
}

type Case = fn(&mut Job<'_>) -> Result<()>;

const CASES: [(&str, Case); 16] = [
    ("checkpoint and restore", around_an_image),
    ("leave-running", left_running),
    ("paused", paused),
    ("settings", by_the_settings),
    ("check", of_a_check),
    ("rights", rights::of_a_hook),
    ("exit code", failing::with_an_exit_code),
    ("no program", failing::without_a_program),
    ("hanging", failing::that_hangs),
    ("child left", failing::that_leaves_a_child),
    ("after-restore fails", failing::after_the_restore),
    ("signal", failing::ended_by_a_signal),
    ("engine killed", killed::of_the_engine),
    ("runner killed", killed::of_the_runner),
    ("suspended", suspended::in_place),
    ("suspend fails", suspended::that_fails),
];

/// A counter with hooks that record their runs.
struct Job<'l> {
    stasis: &'l StasisHost,
    counter: &'l Bundle<'l>,
    count: u32,
}

impl Job<'_> {
    /// Returns the path of a container's file for this process.
    fn in_container(&self, path: &str) -> PathBuf {
        let directory = self.counter.directory();
        self.stasis.path(format!("{directory}/rootfs{path}"))
    }

    /// Replaces these annotations. The engine reads the specification in the bundle.
    fn annotate(&self, annotations: &[(&str, &str)]) -> Result<()> {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
            .collect();
        self.counter
            .change(|spec| spec["annotations"] = json!(annotations))
    }

    /// Sets the usual hooks, with another command before checkpoints.
    fn annotate_before(&self, command: &str, timeout: &str) -> Result<()> {
        let after = (AFTER, "echo after >>/hooks");
        self.annotate(&[(BEFORE, command), after, (TIMEOUT, timeout)])
    }

    fn written(&self) -> String {
        fs::read_to_string(self.in_container("/hooks")).unwrap_or_default()
    }

    /// Checks that these hooks have run since the last time, in this order.
    fn were_run(&self, hooks: &[&str]) -> Result<()> {
        let written = self.written();
        let run: Vec<_> = written.lines().collect();
        ensure!(run == hooks, "{run:?}, not {hooks:?}");
        let path = self.in_container("/hooks");
        if path.exists() {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Waits until a hook has recorded its run.
    fn until_run(&self, hook: &str) -> Result<()> {
        wait_until_clear(|| {
            let written = self.written();
            let is_run = written.lines().any(|line| line == hook);
            Ok((!is_run).then(|| format!("{hook} was not run: {written:?}")))
        })
    }

    /// Checks that no process of a hook is left, and that the counter counts on.
    fn goes_on(&mut self) -> Result<()> {
        self.stasis.nothing_to_put_right()?;
        wait_until_clear(|| {
            let left = self.stasis.run_for_text(&["pgrep", "-f", HANGING]);
            Ok(left.ok().map(|left| format!("processes of a hook: {left}")))
        })?;
        self.count += 1;
        let answer = self.stasis.ask_until_up(PORT)?;
        ensure!(
            answer == self.count.to_string(),
            "{answer}, not {}",
            self.count
        );
        self.annotate_before("echo before >>/hooks", "30")
    }

    /// Returns the phases of the last operation in the log.
    fn phases(&self, operation: &str) -> Result<Vec<String>> {
        let line = self.stasis.operation(operation)?;
        let phases = line["phases"].as_array().context("no phases")?.iter();
        Ok(phases
            .filter_map(|phase| Some(phase["name"].as_str()?.to_owned()))
            .collect())
    }

    fn has_phase(&self, operation: &str, name: &str) -> Result<()> {
        let phases = self.phases(operation)?;
        ensure!(phases.iter().any(|phase| phase == name), "{phases:?}");
        Ok(())
    }
}

fn around_an_image(job: &mut Job<'_>) -> Result<()> {
    job.counter.checkpoint("image", &[])?;
    job.were_run(&["before"])?;
    job.has_phase("checkpoint", "before-checkpoint hook")?;
    job.counter.delete()?;
    job.counter.restore("image")?;
    job.were_run(&["after"])?;
    job.has_phase("restore", "after-restore hook")
}

fn left_running(job: &mut Job<'_>) -> Result<()> {
    for _ in 0..2 {
        job.counter.checkpoint("left", &["--leave-running"])?;
        job.were_run(&["before", "after"])?;
    }
    job.has_phase("checkpoint", "after-restore hook")
}

/// The caller resumes the container that it has paused, and then the program has its GPU again. Two
/// checkpoints before that notify the program once.
fn paused(job: &mut Job<'_>) -> Result<()> {
    job.counter.pause()?;
    job.counter.checkpoint("first", &["--leave-running"])?;
    job.were_run(&["before"])?;
    job.counter.checkpoint("second", &["--leave-running"])?;
    ensure!(job.counter.status()? == "paused");
    job.were_run(&[])?;
    job.counter.resume()?;
    job.were_run(&["after"])?;
    job.has_phase("resume", "after-restore hook")?;
    // After a failed checkpoint the program is notified while the container is not paused.
    job.counter.pause()?;
    job.stasis.inject("checkpoint counter error:801 1")?;
    job.counter
        .checkpoint_fails("refused", &["--leave-running"])?;
    job.stasis.inject("")?;
    ensure!(job.counter.status()? == "paused");
    job.were_run(&["before", "after"])?;
    job.counter.resume()?;
    job.were_run(&[])
}

/// An annotation overrides the settings, also an empty one.
fn by_the_settings(job: &mut Job<'_>) -> Result<()> {
    let settings = "[hooks]\nbefore_checkpoint = [\"/bin/sh\", \"-c\", \"echo by settings >>/hooks\"]\n\
                    after_restore = [\"/bin/touch\", \"/nothing\"]\n";
    job.stasis.set(&job.stasis.low_level, settings)?;
    job.annotate(&[(AFTER, "")])?;
    job.counter.checkpoint("settings", &["--leave-running"])?;
    job.were_run(&["by settings"])?;
    ensure!(!job.in_container("/nothing").exists());
    job.stasis.set(&job.stasis.low_level, "")
}

/// A check lists hooks and runs none; a hook that could not be run refuses a checkpoint.
fn of_a_check(job: &mut Job<'_>) -> Result<()> {
    use stasis_integration::container::bundle::ROOT;
    use stasis_integration::host::installed::PROGRAM;
    let check = |options: &[&str]| {
        let command = [&[PROGRAM, "check", "--root", ROOT], options, &["counter"]].concat();
        job.stasis.command(command[0]).args(&command[1..]).output()
    };
    let report: Value = serde_json::from_slice(&check(&["--json"])?.stdout)?;
    let hooks = &report["hooks"];
    ensure!(
        hooks["before_checkpoint"]["command"][2] == "echo before >>/hooks",
        "{report}"
    );
    ensure!(hooks["after_restore"]["timeout_seconds"] == 30, "{report}");
    let text = String::from_utf8(check(&[])?.stdout)?;
    ensure!(text.contains("before-checkpoint hook"), "{text}");
    job.annotate(&[(BEFORE, "[not json")])?;
    let report: Value = serde_json::from_slice(&check(&["--json"])?.stdout)?;
    ensure!(report["kind"] == "hook-failed", "{report}");
    let message = job.counter.checkpoint_fails("invalid", &[])?;
    for part in ["[hook-failed]", BEFORE, "nothing was changed"] {
        ensure!(message.contains(part), "{message}");
    }
    job.were_run(&[])
}

/// A program that is notified may release a resource that no checkpoint survives.
fn what_is_in_the_way_is_removed(stasis: &StasisHost) -> Result<()> {
    let script = "/bin/sh -c 'exec 9</dev/nvidiactl; exec /bin/pause' & echo $! >/told; \
                  exec /bin/counter 10001";
    let watched = Bundle::make(stasis, "watched", &["/bin/sh", "-c", script])?;
    watched.suit_crun()?;
    watched.change(|spec| spec["annotations"] = json!({BEFORE: "true"}))?;
    watched.comes_up(10001, "101")?;
    stasis.host.until_a_process_is("pause")?;
    let message = watched.checkpoint_fails("blocked", &[])?;
    assert_contains(&message, &["nvidia-device: ", "runs on as before"]);
    watched.change(|spec| spec["annotations"] = json!({BEFORE: END_IT}))?;
    watched.checkpoint("image", &[])?;
    watched.delete()?;
    watched.restore("image")?;
    ensure!(stasis.ask_until_up(10001)? == "102");
    watched.delete()
}

/// Programs without GPU state are not notified.
fn without_cuda(stasis: &StasisHost) -> Result<()> {
    let plain = Bundle::make(stasis, "plain", &["/bin/pause"])?;
    plain.suit_crun()?;
    plain.change(|spec| {
        spec["annotations"] = json!({BEFORE: "touch /before", AFTER: "touch /after"});
    })?;
    plain.run()?;
    plain.checkpoint("image", &[])?;
    plain.restore("image")?;
    for name in ["before", "after"] {
        let path = format!("{}/rootfs/{name}", plain.directory());
        ensure!(!stasis.path(path).exists(), "{name} was run");
    }
    plain.delete()
}
