//! The shim is killed at each system call with which it changes something, in a checkpoint, in a
//! restore, and from a start to a delete: nothing of the container stays, an existing image
//! restores, and the container can be made again.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use stasis_integration::client::containerd::{Answer, Containerd, INIT};
use stasis_integration::container::crash_container::{
    CrashContainer, answered, checkpoint, create,
};
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Hit, Plan, Trace};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

/// A complete checkpoint, which every crash has to leave as it is.
const GOOD: &str = "/images/good";
/// The directory of the checkpoints that are cut off.
const CUT_OFF: &str = "/images/cut-off";

#[test]
fn in_a_checkpoint() -> Result<()> {
    at_steps(|victim, number| victim.checkpoint(number))
}

#[test]
fn in_a_restore() -> Result<()> {
    at_steps(|victim, number| victim.restore(number))
}

#[test]
fn from_start_to_delete() -> Result<()> {
    at_steps(|victim, number| victim.whole_life(number))
}

fn at_steps(act: impl Fn(&Victim<'_>, u32) -> Result<Vec<Hit>>) -> Result<()> {
    needs!(StandIn);
    let stasis = StasisHost::of(HostKind::sid_v2()?)?.through_the_shim()?;
    let containerd = stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    let container = CrashContainer::make(&stasis, "victim", &["/bin/memcheck", "8", "10000"])?;
    let victim = Victim {
        stasis: &stasis,
        client: &client,
        container: &container,
    };
    victim.starts(None, "ok 0")?;
    checkpoint(&client, "victim", GOOD, true)?;
    client.delete("victim")?;
    for number in 1.. {
        let hits = act(&victim, number)
            .with_context(|| format!("at call {number}"))
            .inspect_err(|_| println!("{}", containerd.log().unwrap_or_default()))?;
        let Some(hit) = hits.first() else {
            ensure!(number > 1, "nothing was hit");
            return Ok(());
        };
        println!("{number}: {hit}");
    }
    Ok(())
}

fn is_of_socket(hit: &Hit) -> bool {
    let path = hit.call.path.as_ref();
    path.is_some_and(|path| path.starts_with("/run/containerd/s"))
}

struct Victim<'l> {
    stasis: &'l StasisHost,
    client: &'l Containerd,
    container: &'l CrashContainer<'l>,
}

impl Victim<'_> {
    fn checkpoint(&self, number: u32) -> Result<Vec<Hit>> {
        self.starts(None, "ok 0")?;
        let hits = self.killed_at(number, || {
            let caller = self.container.begin_checkpoint(self.client, CUT_OFF)?;
            answered(caller.join())
        })?;
        let image = self.stasis.path(CUT_OFF);
        if image.join("stasis.json").exists() {
            self.starts(Some(CUT_OFF), "ok 1")?;
            self.ends()?;
        }
        if image.exists() {
            fs::remove_dir_all(image)?;
        }
        Ok(hits)
    }

    fn restore(&self, number: u32) -> Result<Vec<Hit>> {
        create(self.client, "victim", Some(GOOD))?;
        let hits = self.killed_at(number, || {
            let begun = self
                .container
                .begin(self.client, |client| client.start("victim", "").map(drop))?;
            answered(begun.join())
        })?;
        self.starts(Some(GOOD), "ok 1")?;
        self.ends()?;
        Ok(hits)
    }

    fn whole_life(&self, number: u32) -> Result<Vec<Hit>> {
        create(self.client, "victim", None)?;
        let hits = self.killed_at(number, || {
            let begun = self.container.begin(self.client, |client| {
                client.start("victim", INIT)?;
                client.kill("victim", INIT, 9)?;
                client.wait("victim", INIT)?;
                client.delete("victim").map(drop)
            })?;
            answered(begun.join())
        })?;
        self.starts(None, "ok 0")?;
        self.ends()?;
        Ok(hits)
    }

    /// Returns the call at which the shim was killed, if it was; nothing is left of the task then.
    fn killed_at(&self, number: u32, act: impl FnOnce() -> Result<Answer<()>>) -> Result<Vec<Hit>> {
        let shims = self.stasis.shims_outside()?;
        let [shim] = shims[..] else {
            bail!("no shim, or several: {shims:?}");
        };
        let plan = Plan {
            class: Class::Changes,
            at: At::Number(number),
            action: Action::Kill,
        };
        let trace = Trace::of_running(shim, plan, Box::new(|| "shim".to_owned()))?;
        let answer = act()?;
        let hits = trace.seen_so_far()?.hits;
        if hits.is_empty() {
            ensure!(answer.is_ok(), "without a fault: {answer:?}");
            // A life of the task is over by now.
            if self.client.state("victim", INIT).is_ok() {
                self.ends()?;
            }
        }
        if hits.iter().any(is_of_socket) {
            // containerd has deleted the task, and perhaps the directory in which it would run the
            // shim's `delete`. The next shim at that address takes it over.
            self.container.nothing_but_socket_left(self.client)?;
        } else {
            self.container.nothing_left(self.client)?;
        }
        Ok(hits)
    }

    fn starts(&self, image: Option<&str>, answer: &str) -> Result<()> {
        self.container.start(self.client, image)?;
        let now = self.stasis.ask_until_up(10000)?;
        ensure!(now == answer, "{now:?} and not {answer:?}");
        Ok(())
    }

    fn ends(&self) -> Result<()> {
        self.container.end(self.client)?;
        self.container.nothing_left(self.client)
    }
}
