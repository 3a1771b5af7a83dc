//! Suspends and resumes whose copying is cut off, or cannot begin: no byte is lost, nothing is left
//! in the process, and the next one works.

use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use crate::debugger::Debugger;
use crate::limits::{LIMIT, allow, limited};
use crate::suspended::{TOGGLE, in_file, seen, until_dead};

const SUSPENDS: &str = "cuda-checkpoint";
const COPIER: &str = "stasis-gpu-copy";
const KEEPER: &str = "stasis-keeper";
const HELD: &str = "step";

struct Here<'l> {
    stasis: &'l StasisHost,
    memory: &'l Bundle<'l>,
}

#[test]
fn who_copies_or_asked_for_it_is_killed() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = &limited(stasis)?;
    let here = Here { stasis, memory };
    [(); 2].into_iter().try_for_each(|()| here.toggles(""))?;
    let before = seen(stasis, memory)?;
    let mut asked = 0;
    for call in ["checkpoint", "restore"] {
        for killed in [&[COPIER][..], &[SUSPENDS], &[SUSPENDS, COPIER]] {
            let name = || format!("{call}: {killed:?} killed");
            here.killed_in(call, killed).with_context(name)?;
            asked += 1;
            let answer = stasis.ask_until_up(10000).with_context(name)?;
            ensure!(answer == format!("ok {asked}"), "{}: {answer}", name());
            assert_eq!(seen(stasis, memory)?, before, "{}", name());
        }
        let name = || format!("{call}: all were killed");
        here.all_killed_in(call).with_context(name)?;
        asked += 1;
        let answer = stasis.ask_until_up(10000).with_context(name)?;
        ensure!(answer == format!("ok {asked}"), "{}: {answer}", name());
        assert_eq!(seen(stasis, memory)?, before, "{}", name());
    }
    memory.checkpoint("after-all", &[])?;
    memory.delete()
}

/// A process has one tracer at most: the driver then copies alone, within the container's limits.
#[test]
fn a_debugger_is_in_the_way() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = &limited(stasis)?;
    let here = Here { stasis, memory };
    let debugger = Debugger::of(stasis, &memory.pid()?.to_string())?;
    // The process's tracer is in another namespace, where the process cannot see it.
    let refused = stasis
        .host
        .command(TOGGLE[0])
        .args(&TOGGLE[1..])
        .arg(ROOT)
        .output()?;
    assert_contains(
        &String::from_utf8_lossy(&refused.stderr),
        &[
            "Operation not permitted",
            "allows 128 MiB",
            "nothing was done",
        ],
    );
    allow(stasis, memory, 4 * LIMIT)?;
    here.toggles("Operation not permitted")?;
    assert_eq!(in_file(stasis, memory)?, 0);
    // The driver alone copies contents back that are in no file.
    here.toggles("")?;
    drop(debugger);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.delete()
}

impl Here<'_> {
    /// Suspends the container, or resumes it, with this note on standard error.
    fn toggles(&self, note: &str) -> Result<()> {
        let output = self.begin()?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        ensure!(
            said.contains(note) && said.is_empty() == note.is_empty(),
            "{said}"
        );
        Ok(())
    }

    fn begin(&self) -> Result<Child> {
        let mut command = self.stasis.command(TOGGLE[0]);
        command.args(&TOGGLE[1..]).arg(ROOT);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// Kills in the first half of a toggle and back, or in the second.
    fn killed_in(&self, call: &str, killed: &[&str]) -> Result<()> {
        if call == "restore" {
            self.toggles("")?;
        }
        let toggle = self.cut_off(call, killed)?;
        if killed == [COPIER] {
            let output = toggle.wait_with_output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{said}");
            assert_contains(&said, &["could not be put back at once", "it is now"]);
            if call == "checkpoint" {
                ensure!(in_file(self.stasis, self.memory)? > 0, "where are they?");
                self.toggles("")?;
            }
        } else {
            // The keeper undoes a suspend that was killed, and finishes a resume.
            self.stasis.nothing_to_put_right()?;
        }
        Ok(())
    }

    fn all_killed_in(&self, call: &str) -> Result<()> {
        if call == "restore" {
            self.toggles("")?;
        }
        let all = [KEEPER, SUSPENDS, COPIER];
        drop(self.cut_off(call, &all)?.wait_with_output()?);
        until_dead(self.stasis, &all.join("|"))?;
        self.stasis.run(&[PROGRAM, "recover"])?;
        self.stasis.nothing_to_put_right()
    }

    /// Kills these processes while the driver holds a call.
    fn cut_off(&self, call: &str, killed: &[&str]) -> Result<Child> {
        self.stasis.hold_driver(&format!("{call} memory"), HELD)?;
        let toggle = self.begin()?;
        self.stasis.until_driver_is_called()?;
        for name in killed {
            self.is_there(name)?;
        }
        // One after the other, as pkill does: the copying process outlives its caller by a moment.
        let names = killed.join("|");
        self.stasis.run(&["pkill", "-KILL", "-x", &names])?;
        self.stasis.let_driver_go(HELD)?;
        self.stasis.inject("")?;
        Ok(toggle)
    }

    /// A process takes its name some time after it was started.
    fn is_there(&self, name: &str) -> Result<()> {
        wait_until_clear(|| {
            let found = self.stasis.run_for_text(&["pgrep", "-x", name]);
            Ok(found.is_err().then(|| format!("there is no {name}")))
        })
    }
}
