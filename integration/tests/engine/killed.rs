//! Operations that are killed (SIGKILL) at a step, without a further call to stasis: their keepers
//! undo the work.

mod keeper;
mod surveys;

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_integration::check::process_tree::descendant_of;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::on_hosts;

const PORT: u16 = 10300;
/// The name of a held driver call.
const HELD: &str = "step";
const CONTAINER: [&str; 4] = ["--container", "counter", "--root", ROOT];

on_hosts!(all_cases: trixie, sid_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let counter = Bundle::make(stasis, "counter", &["/bin/counter", "10300"])?;
    counter.comes_up(PORT, "101")?;
    let here = &Killed {
        stasis,
        counter: &counter,
    };
    let mut count = 101;
    for (name, case) in CASES {
        case(here).context(name)?;
        here.stasis.nothing_to_put_right().context(name)?;
        count += 1;
        let answer = stasis.ask_until_up(PORT).context(name)?;
        ensure!(answer == count.to_string(), "{name}: {answer}, not {count}");
    }
    counter.checkpoint("after-all", &[])?;
    counter.delete()
}

type Case = fn(&Killed<'_>) -> Result<()>;

const CASES: [(&str, Case); 18] = [
    ("checkpoint, lock", in_the_lock),
    ("checkpoint of a paused container", while_paused),
    ("checkpoint, gpu restore", in_the_gpu_restore),
    ("checkpoint, dump", in_the_dump),
    ("suspend and its end", in_a_suspend),
    ("resume", in_a_resume),
    ("resume, before the thaw", before_the_thaw),
    ("both, before the thaw", both_before_the_thaw),
    ("the keeper", keeper::of_the_keeper),
    ("both", keeper::of_both),
    (
        "both, of one that cannot be read",
        keeper::of_both_unreadable,
    ),
    (
        "both, below a command of ours",
        keeper::of_both_below_a_command,
    ),
    ("both, of a paused container", keeper::of_both_while_paused),
    ("without a driver", keeper::without_a_driver),
    ("restore", in_a_restore),
    ("both, of a restore", keeper::of_both_in_a_restore),
    ("both, cold start", keeper::of_both_before_a_cold_start),
    ("both, delete", keeper::of_both_before_a_delete),
];

/// Kills operations on a counter with this tag.
pub(crate) struct Killed<'l> {
    pub(crate) stasis: &'l StasisHost,
    pub(crate) counter: &'l Bundle<'l>,
}

impl Killed<'_> {
    /// Kills an operation at a driver call, which is not made then.
    pub(crate) fn at(&self, call: &str, begin: impl FnOnce() -> Result<Child>) -> Result<()> {
        let (mut operation, runtime) = self.held(call, begin)?;
        kill(runtime, Signal::SIGKILL)?;
        operation.wait()?;
        self.let_go()
    }

    /// Begins an operation that is held at a driver call. Returns the child and the program itself.
    pub(crate) fn held(
        &self,
        call: &str,
        begin: impl FnOnce() -> Result<Child>,
    ) -> Result<(Child, Pid)> {
        self.stasis.hold_driver(&format!("{call} counter"), HELD)?;
        let child = begin()?;
        self.stasis.until_driver_is_called()?;
        self.stasis.until_kept()?;
        let program = descendant_of(&child, &["stasis-runtime", "cuda-checkpoint"])?;
        Ok((child, program.context("it is over")?))
    }

    pub(crate) fn let_go(&self) -> Result<()> {
        self.stasis.let_driver_go(HELD)?;
        self.stasis.inject("")
    }

    fn checkpoint(&self) -> Result<Child> {
        self.counter
            .begin_checkpoint("cut-off", &["--leave-running"])
    }

    fn toggle(&self) -> Result<Child> {
        let mut command = self.stasis.command(CUDA_CHECKPOINT);
        Ok(command.arg("--toggle").args(CONTAINER).spawn()?)
    }

    fn status_is(&self, wanted: &str) -> Result<()> {
        let status = self.counter.status()?;
        ensure!(status == wanted, "the container is {status}");
        Ok(())
    }
}

fn in_the_lock(here: &Killed<'_>) -> Result<()> {
    here.at("lock", || here.checkpoint())?;
    here.stasis.nothing_to_put_right()?;
    here.status_is("running")
}

fn while_paused(here: &Killed<'_>) -> Result<()> {
    here.counter.pause()?;
    here.at("checkpoint", || here.checkpoint())?;
    here.stasis.nothing_to_put_right()?;
    here.status_is("paused")?;
    here.counter.resume()
}

fn in_the_gpu_restore(here: &Killed<'_>) -> Result<()> {
    here.at("restore", || here.checkpoint())
}

/// The dump continues alone; then the container goes on.
fn in_the_dump(here: &Killed<'_>) -> Result<()> {
    here.counter.before_criu("kill -9 $PPID", "")?;
    let mut operation = here
        .counter
        .begin_checkpoint("in-dump", &["--leave-running"])?;
    ensure!(!operation.wait()?.success(), "it was not killed");
    here.stasis.set(&here.stasis.low_level, "")?;
    here.stasis.nothing_to_put_right()?;
    let image = here.counter.image_path("in-dump");
    ensure!(!image.join("stasis.json").exists() && !image.join("inventory.img").exists());
    // A container that has ended has a whole image, in the directory that the caller wanted.
    here.counter.checkpoint("dump", &["--leave-running"])?;
    let earlier = here.counter.manifest("dump")?;
    here.counter.before_criu("kill -9 $PPID", "")?;
    ensure!(
        !here
            .counter
            .begin_checkpoint("dump", &[])?
            .wait()?
            .success()
    );
    here.stasis.set(&here.stasis.low_level, "")?;
    here.stasis.nothing_to_put_right()?;
    ensure!(
        here.counter.manifest("dump")? != earlier,
        "the earlier image"
    );
    ensure!(!here.counter.image_path("dump/.stasis-new").exists());
    here.counter.delete()?;
    here.counter.restore("dump")
}

fn in_a_suspend(here: &Killed<'_>) -> Result<()> {
    here.at("checkpoint", || here.toggle())?;
    here.stasis.nothing_to_put_right()?;
    ensure!(here.toggle()?.wait()?.success(), "it is not as it was");
    here.at("restore", || here.toggle())
}

fn in_a_resume(here: &Killed<'_>) -> Result<()> {
    here.counter.pause()?;
    ensure!(here.checkpoint()?.wait()?.success());
    here.at("restore", || {
        Ok(here.counter.runtime(&["resume", "counter"]).spawn()?)
    })?;
    here.stasis.nothing_to_put_right()?;
    here.status_is("running")
}

/// The caller may ignore the failure, and never resume the container again: the keeper resumes it.
fn before_the_thaw(here: &Killed<'_>) -> Result<()> {
    cut_off_before_the_thaw(here, "kill -9 $PPID; exit 1")?;
    here.stasis.nothing_to_put_right()?;
    here.status_is("running")
}

/// The caller's next resume finishes the killed one.
fn both_before_the_thaw(here: &Killed<'_>) -> Result<()> {
    // A keeper that has just been started does not have its name yet.
    let script = "until pkill -KILL -x stasis-keeper; do sleep 0.01; done; kill -9 $PPID; exit 1";
    cut_off_before_the_thaw(here, script)?;
    here.status_is("paused")?;
    here.counter.resume()?;
    here.status_is("running")
}

fn cut_off_before_the_thaw(here: &Killed<'_>, script: &str) -> Result<()> {
    here.counter.pause()?;
    here.counter.checkpoint("paused", &["--leave-running"])?;
    here.counter.before("resume", script, "")?;
    let mut resume = here.counter.runtime(&["resume", "counter"]).spawn()?;
    ensure!(!resume.wait()?.success(), "it was not killed");
    here.stasis.set(&here.stasis.low_level, "")
}

/// The restored container is ended, as after a failed restore.
fn in_a_restore(here: &Killed<'_>) -> Result<()> {
    here.counter.checkpoint("good", &[])?;
    here.counter.delete()?;
    let config = here
        .stasis
        .path(format!("{}/config.json", here.counter.directory()));
    let before = fs::read(&config)?;
    here.at("restore", || here.counter.begin_restore("good"))?;
    here.stasis.nothing_to_put_right()?;
    here.status_is("")?;
    ensure!(fs::read(&config)? == before, "config.json was changed");
    here.counter.restore("good")
}
