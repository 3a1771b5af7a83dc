//! Several containers at once: a process of this program for each.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_host::cancel::Cancel;
use stasis_linux::ProcessRef;

use super::outcome::Outcome;
use super::{Arguments, Goal};

/// This program, even if its file was replaced meanwhile.
const OWN: &str = "/proc/self/exe";
/// The interval of looks for a signal, and for processes that have ended.
const LOOK: Duration = Duration::from_millis(50);

/// The answer of a process for one container.
#[derive(serde::Deserialize)]
struct Answer {
    containers: Vec<Outcome>,
}

/// Brings all containers to their goal, each by a process of its own; returns the outcomes in their
/// order. A signal to this process is passed on to all of them: each rolls its operation back.
pub(super) fn run_each(
    arguments: &Arguments,
    goal: Goal,
    config: Option<&Path>,
) -> io::Result<Vec<Outcome>> {
    let cancel = Cancel::on_signals()?;
    thread::scope(|scope| {
        let works: Vec<_> = arguments
            .containers
            .iter()
            .map(|name| {
                let started = start(arguments, name, goal, config);
                let process = started.as_ref().ok().and_then(held);
                let work = scope.spawn(|| started.and_then(Child::wait_with_output));
                (name, process, work)
            })
            .collect();
        let mut told = false;
        while works.iter().any(|(_, _, work)| !work.is_finished()) {
            if cancel.requested() && !told {
                told = true;
                for process in works.iter().filter_map(|(_, process, _)| process.as_ref()) {
                    // The process may just have ended.
                    let _ = process.terminate();
                }
            }
            thread::sleep(LOOK);
        }
        let outcome = |name: &String, joined: thread::Result<io::Result<Output>>| match joined {
            Ok(ended) => outcome(name, ended),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let ended = works.into_iter();
        Ok(ended
            .map(|(name, _, work)| outcome(name, work.join()))
            .collect())
    })
}

fn held(child: &Child) -> Option<ProcessRef> {
    let pid = i32::try_from(child.id()).ok()?;
    ProcessRef::open(pid).ok().flatten()
}

fn start(
    arguments: &Arguments,
    name: &str,
    goal: Goal,
    config: Option<&Path>,
) -> io::Result<Child> {
    let mut command = Command::new(OWN);
    command.arg(goal.verb()).arg("--json");
    if let Some(seconds) = arguments.wait {
        command.arg(format!("--wait={seconds}"));
    }
    for (option, path) in [
        ("--root=", arguments.root.as_deref()),
        ("--config=", config),
    ] {
        if let Some(path) = path {
            let mut text = OsString::from(option);
            text.push(path);
            command.arg(text);
        }
    }
    command.arg("--").arg(name);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

fn outcome(name: &str, ended: io::Result<Output>) -> Outcome {
    let output = match ended {
        Ok(output) => output,
        Err(error) => return unknown(name, format!("no process for it: {error}")),
    };
    let answer = serde_json::from_slice::<Answer>(&output.stdout);
    let outcome = answer.ok().and_then(|mut answer| answer.containers.pop());
    outcome.unwrap_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let error = format!("its process ended ({}): {}", output.status, said.trim());
        unknown(name, error)
    })
}

/// Makes the outcome of a container whose process of ours gave no answer.
fn unknown(name: &str, error: String) -> Outcome {
    Outcome::failed(name, None, error, Diagnosis::new(Kind::Io, State::Unknown))
}
