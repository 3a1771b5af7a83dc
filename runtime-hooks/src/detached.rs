//! This program once more, for what has to be done after its caller was answered.

use std::env::args_os;
use std::ffi::{CStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Starts it with a charge, as the verb `verb`, which is none of runc or crun; gives its pid.
///
/// # Errors
/// What the kernel said.
pub(crate) fn start(verb: &str, charge: &impl Serialize) -> io::Result<u32> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(verb)
        .args([verb, &serde_json::to_string(charge)?])
        // Wherever the caller's directory is, it must not be kept from being removed.
        .current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command.spawn()?.id())
}

/// The charge of this process, if it was started as `verb`. It lets go of all that it has from its
/// starter: session, name and open files, on whose end somebody may wait.
pub(crate) fn charge_of<T: DeserializeOwned>(verb: &str, name: &CStr) -> Option<T> {
    let mut arguments = args_os().skip(1);
    if arguments.next() != Some(OsString::from(verb)) {
        return None;
    }
    let charge = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(name);
    let _ = close_inherited();
    Some(charge)
}

fn close_inherited() -> io::Result<()> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_string_lossy().parse::<i32>());
    }
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // That of the directory itself is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
