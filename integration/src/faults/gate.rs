//! Programs of a test host that wait at their start for a tracer.

use std::fs::{self, File};
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::host::installed::StasisHost;

/// The directory of the gates in a test host.
const GATES: &str = "/run/gates";

/// A script before a program. While the gate is closed, the next start of the program waits in it.
#[derive(Debug)]
pub struct Gate<'l> {
    stasis: &'l StasisHost,
    name: String,
    /// Its path in the host.
    pub path: String,
    /// A line for each program that waits; open as long as a program may.
    fifo: File,
}

/// A program that waits at its gate.
#[derive(Debug)]
pub struct Held {
    /// The process, in which the program will be.
    pub pid: Pid,
    gate: File,
}

impl<'l> Gate<'l> {
    /// Puts a gate at the absolute path `at` before `program`. Only starts whose
    /// arguments match the shell's `pattern` are held.
    pub fn build(
        stasis: &'l StasisHost,
        name: &str,
        at: &str,
        program: &str,
        pattern: &str,
    ) -> Result<Self> {
        let gate = format!("{GATES}/{name}");
        let script = format!(
            "#!/bin/sh\n\
             case \" $* \" in {pattern})\n\
             if [ -e {gate}.closed ] && mv {gate}.closed {gate}.taken 2>/dev/null; then\n\
             echo $$ >{gate}.new && mv {gate}.new {gate}.pid\n\
             read -r _ <{gate}.open\n\
             fi;;\n\
             esac\n\
             exec {program} \"$@\"\n"
        );
        stasis.script(at, &script)?;
        stasis.run(&["mkdir", "-p", GATES])?;
        // A container of this name may have existed before.
        let fifo = format!("{gate}.open");
        let script = format!("[ -p {fifo} ] || mkfifo {fifo}");
        stasis.run(&["sh", "-c", &script])?;
        let fifo = stasis.path(format!("{gate}.open"));
        Ok(Self {
            stasis,
            name: name.to_owned(),
            path: at.to_owned(),
            // Not for writing alone: this would wait for a reader.
            fifo: File::options().read(true).write(true).open(fifo)?,
        })
    }

    /// Has the next start of the program wait.
    pub fn close(&self) -> Result<()> {
        Ok(fs::write(self.file("closed"), "")?)
    }

    /// Lets all programs pass from now on.
    pub fn open(&self) -> Result<()> {
        if fs::remove_file(self.file("closed")).is_ok() {
            return Ok(());
        }
        // A program has come.
        match self.held(|| false)? {
            Some(mut held) => held.let_go(),
            None => Ok(()),
        }
    }

    /// Waits for a program that waits at its gate; `None` if none has come when `over` reports that
    /// none will, or after a minute.
    pub fn held(&self, over: impl Fn() -> bool) -> Result<Option<Held>> {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let is_late = over() || Instant::now() > deadline;
            if let Ok(pid) = fs::read_to_string(self.file("pid")) {
                fs::remove_file(self.file("pid"))?;
                let pid = self.stasis.host.outside(pid.trim())?;
                let gate = self.fifo.try_clone()?;
                return Ok(Some(Held { pid, gate }));
            }
            if is_late && fs::remove_file(self.file("closed")).is_ok() {
                return Ok(None);
            }
            sleep(Duration::from_millis(2));
        }
    }

    fn file(&self, ending: &str) -> std::path::PathBuf {
        let Self { stasis, name, .. } = self;
        stasis.path(format!("{GATES}/{name}.{ending}"))
    }
}

impl Held {
    /// Lets it go on.
    pub(super) fn let_go(&mut self) -> Result<()> {
        self.gate.write_all(b"\n").context("opening a gate")
    }
}
