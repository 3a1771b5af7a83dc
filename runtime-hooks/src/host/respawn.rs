//! Starts this program again, for work that goes on after the caller has its answer.

use std::env::args_os;
use std::ffi::{CStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;
use stasis_linux::cgroup::set_apart;
use stasis_linux::open_files::keep_callers_limit;

use crate::host::environment;

/// The cgroup of these processes: what ends the caller's unit, session or pod does not end them.
const CGROUP: &str = "stasis";

/// Starts this program with `job` as the verb `verb`, which runc and crun do not have; returns the
/// pid.
///
/// # Errors
/// An error of encoding the job or of starting the process.
pub(crate) fn start(verb: &str, job: &impl Serialize) -> io::Result<u32> {
    let started = start_with(verb, job, [Stdio::null(), Stdio::null()])?;
    Ok(started.id())
}

/// As [`start`], with a standard input and a standard output.
///
/// # Errors
/// As [`start`].
pub(crate) fn start_with(
    verb: &str,
    job: &impl Serialize,
    streams: [Stdio; 2],
) -> io::Result<Child> {
    spawn(program(verb, job)?, streams)
}

/// As [`start_with`], without any environment: what it starts calls libraries that obey variables
/// of their own.
///
/// # Errors
/// As [`start`].
pub(crate) fn start_apart(
    verb: &str,
    job: &impl Serialize,
    streams: [Stdio; 2],
) -> io::Result<Child> {
    let mut command = program(verb, job)?;
    command.env_clear();
    spawn(command, streams)
}

fn program(verb: &str, job: &impl Serialize) -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(verb)
        .args([verb, &serde_json::to_string(job)?])
        // The caller's directory must stay removable.
        .current_dir("/");
    environment::make(&mut command);
    Ok(command)
}

fn spawn(mut command: Command, [input, output]: [Stdio; 2]) -> io::Result<Child> {
    command.stdin(input).stdout(output).stderr(Stdio::null());
    keep_callers_limit(&mut command);
    let started = command.spawn()?;
    // Where it must stay in the caller's cgroups, it works all the same as long as those live.
    let _ = set_apart(started.id(), CGROUP);
    Ok(started)
}

/// The job of this process, if it was started as `verb`. Leaves the starter's session and name, and
/// closes the inherited files but the standard ones, since a reader may wait for their end.
pub(crate) fn job_of<T: DeserializeOwned>(verb: &str, name: &CStr) -> Option<T> {
    let mut arguments = args_os().skip(1);
    if arguments.next() != Some(OsString::from(verb)) {
        return None;
    }
    let job = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(name);
    let _ = close_inherited();
    Some(job)
}

/// Says something to the starter, as a line of its own.
///
/// # Errors
/// Nobody reads it any more.
pub(crate) fn say(message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

fn close_inherited() -> io::Result<()> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_string_lossy().parse::<i32>());
    }
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The descriptor of the directory itself is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
