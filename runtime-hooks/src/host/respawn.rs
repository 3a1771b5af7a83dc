//! Starts this program again, for work that goes on after the caller has its answer.

use std::env::args_os;
use std::ffi::{CStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;
use stasis_linux::open_files::keep_callers_limit;

/// Starts this program with `job` as the verb `verb`, which runc and crun do not have; returns the
/// pid.
///
/// # Errors
/// An error of encoding the job or of starting the process.
pub(crate) fn start(verb: &str, job: &impl Serialize) -> io::Result<u32> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(verb)
        .args([verb, &serde_json::to_string(job)?])
        // The caller's directory must stay removable.
        .current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    keep_callers_limit(&mut command);
    Ok(command.spawn()?.id())
}

/// The job of this process, if it was started as `verb`. Leaves the starter's session and name, and
/// closes the inherited files, since a reader may wait for their end.
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
