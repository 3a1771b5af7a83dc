//! Calls an engine's command, shows the operation's progress, and takes it back on a signal.
//!
//! A signal to the client of an engine ends the client, and the operation goes on without it:
//! dockerd and containerd carry it out themselves, and podman leaves its runtime behind. So the
//! command is in a process group of its own, which a Ctrl-C does not reach, and the signal goes to
//! the process that carries the operation out. It rolls back and fails, which the engine reports.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use stasis_engine::operation::lock;
use stasis_engine::operation::progress::UnderWay;
use stasis_engine::operation::undo::{Begun, Undo};
use stasis_engine::operation::verb::Verb;
use stasis_engine::operation::{directories, id_of};
use stasis_host::cancel::Cancel;
use stasis_host::output::{file_for_output, output_in};
use stasis_linux::ProcessRef;

use super::command::{Called, EngineCommand};
use super::progress::ProgressLine;

/// The interval of looks for progress, and for a signal.
const LOOK: Duration = Duration::from_millis(50);
/// More bytes than engines write.
const MOST_SAID: u64 = 1 << 20;

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    status: ExitStatus,
    /// Its standard error.
    said: String,
    /// Whether a signal asked for the operation to end before that.
    pub(super) was_told_to_end: bool,
}

/// The place of the operation's record.
#[derive(Debug, Clone, Copy)]
pub(super) enum Record<'a> {
    /// In this directory.
    At(&'a Path),
    /// In the directory of a container of this id, below any root of its runtime; nowhere without
    /// an id.
    Somewhere {
        state_dir: &'a Path,
        id: Option<&'a str>,
    },
}

impl Ended {
    pub(super) fn is_success(&self) -> bool {
        self.status.success()
    }

    /// Returns its message on failure.
    pub(super) fn failure(&self) -> String {
        match self.said.as_str() {
            "" => format!("it failed without a message ({})", self.status),
            said => said.to_owned(),
        }
    }
}

/// Calls the command and waits for its end.
pub(super) fn call(
    command: &EngineCommand,
    verb: Verb,
    record: &Record<'_>,
    line: &mut ProgressLine,
) -> io::Result<Ended> {
    let cancel = Cancel::on_signals()?;
    let said = file_for_output()?;
    let mut child = start(command, &said)?;
    let mut told = Told::default();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let of_it = |under_way: &UnderWay| under_way.operation == verb.to_string();
        let under_way = record.under_way().filter(of_it);
        if cancel.requested() {
            line.is_taken_back();
            told.tell(command.called, &child, under_way.as_ref());
        }
        line.show(under_way.as_ref());
        thread::sleep(LOOK);
    };
    line.clear();
    Ok(Ended {
        status,
        said: output_in(&said, MOST_SAID)?,
        was_told_to_end: cancel.requested(),
    })
}

fn start(command: &EngineCommand, said: &File) -> io::Result<Child> {
    let stderr = match command.called {
        Called::Client => Stdio::from(said.try_clone()?),
        // A restored container inherits it, and could not be dumped with it again.
        Called::Runtime => Stdio::null(),
    };
    let mut command = command.command();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .process_group(0)
        .spawn()
}

impl Record<'_> {
    /// Returns the operation that is under way.
    pub(super) fn under_way(&self) -> Option<UnderWay> {
        self.directories().iter().find_map(|directory| {
            let under_way = UnderWay::read(directory).ok().flatten();
            under_way.filter(|under_way| under_way.is_alive().unwrap_or(true))
        })
    }

    fn directories(&self) -> Vec<PathBuf> {
        match *self {
            Self::At(directory) => vec![directory.to_owned()],
            Self::Somewhere { id: None, .. } => Vec::new(),
            Self::Somewhere {
                state_dir,
                id: Some(id),
            } => {
                let mut all = directories(state_dir).unwrap_or_default();
                all.retain(|directory| id_of(directory) == id);
                all
            }
        }
    }

    /// Returns whether something is to be undone, and no keeper is there to do that.
    pub(super) fn is_left(&self) -> bool {
        let mut directories = self.directories().into_iter();
        directories.any(|directory| Undo::is_cut_off(&directory))
    }

    fn is_held(&self) -> bool {
        let mut directories = self.directories().into_iter();
        directories.any(|directory| lock::is_held(&directory))
    }

    fn is_being_undone(&self) -> bool {
        self.directories().iter().any(|directory| {
            let undo = Undo::read(directory).ok().flatten();
            undo.is_some_and(|undo| undo.begun != Begun::Waiting)
        })
    }
}

/// The processes that were asked to end.
#[derive(Debug, Default)]
struct Told {
    runtime: bool,
    /// The process of the operation, by pid and start time.
    operation: Option<(i32, u64)>,
}

impl Told {
    /// Asks each process once: it handles the first signal, and rolls back.
    fn tell(&mut self, called: Called, child: &Child, under_way: Option<&UnderWay>) {
        if called == Called::Runtime && !self.runtime {
            self.runtime = true;
            terminate(i32::try_from(child.id()).unwrap_or_default(), None);
        }
        let Some(under_way) = under_way else {
            return;
        };
        let process = (under_way.pid, under_way.start_time);
        let is_child = u32::try_from(under_way.pid) == Ok(child.id());
        if self.operation != Some(process) && !is_child {
            self.operation = Some(process);
            terminate(under_way.pid, Some(under_way.start_time));
        }
    }
}

/// Asks a process to end, which may just have ended.
fn terminate(pid: i32, start_time: Option<u64>) {
    if let Ok(Some(process)) = ProcessRef::open(pid)
        && start_time.is_none_or(|start_time| process.start_time() == start_time)
    {
        let _ = process.terminate();
    }
}

/// Waits until no operation on a container is being undone, or only ones that wait for others, or
/// have no keeper: for so long at most.
pub(super) fn until_undone(record: &Record<'_>, limit: Duration) {
    let start = Instant::now();
    while record.is_being_undone() && record.is_held() && start.elapsed() < limit {
        thread::sleep(LOOK);
    }
}
