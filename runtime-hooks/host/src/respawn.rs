//! Starts processes for work that goes on after the caller has its answer: this program again, or
//! for transfers the operator's program.

mod inherited;

use std::env::{args_os, current_exe};
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeWriter, Write, pipe};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread};
use rustix::stdio::{dup2_stderr, stderr};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use stasis_config::interface;
use stasis_linux::cgroup::move_to_own_cgroup;
use stasis_linux::open_files::keep_callers_limit;

use crate::capabilities::{StillPrivileged, Work};
use crate::environment;
pub use inherited::Inherited;
use inherited::close;

/// The cgroup of these processes: the end of the caller's unit, session or pod does not end them.
const CGROUP: &str = "stasis";
/// This program, also if an upgrade has removed its file.
const OWN: &str = "/proc/self/exe";
/// The operator's program, beside this one, which may be of another version.
const OPERATORS: &str = "stasis";
/// Far more than a job for hundreds of thousands of processes has, in bytes.
const MAX_JOB: usize = 64 << 20;

/// Starts this program with `job` as the verb `verb`, which runc and crun do not have, with a
/// standard input and a standard output.
///
/// # Errors
/// An error of encoding the job or of starting the process.
pub fn start_with(verb: &str, job: &impl Serialize, streams: [Stdio; 2]) -> io::Result<Child> {
    spawn(program(OWN.as_ref(), verb, job)?, streams)
}

/// Starts a transfer; returns the pid. As [`start_with`], but of the operator's program: it has the
/// client of registries.
///
/// # Errors
/// As of [`start_with`], with the program's name.
pub fn start_transfer(verb: &str, job: &impl Serialize) -> io::Result<u32> {
    let started = start_operators(verb, job, [Stdio::null(), Stdio::null()])?;
    Ok(started.id())
}

fn start_operators(verb: &str, job: &impl Serialize, streams: [Stdio; 2]) -> io::Result<Child> {
    // An upgrade may have removed this file: its directory and the other program remain.
    let path = current_exe()?.with_file_name(OPERATORS);
    let mut command = program(&path, verb, job)?;
    command.arg(interface::argument());
    let started = spawn(command, streams);
    started.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// As [`start_with`], without any environment: the process calls libraries that obey variables of
/// their own.
pub fn start_apart(verb: &str, job: &impl Serialize, streams: [Stdio; 2]) -> io::Result<Child> {
    let mut command = program(OWN.as_ref(), verb, job)?;
    command.env_clear();
    spawn(command, streams)
}

/// As [`start_transfer`], of a transfer that talks with this process; returns it, its input, and
/// the lines of its output.
pub fn start_talking_transfer(
    verb: &str,
    job: &impl Serialize,
) -> io::Result<(Child, PipeWriter, Receiver<String>)> {
    let (stdin, input) = pipe()?;
    let (output, stdout) = pipe()?;
    let process = start_operators(verb, job, [stdin.into(), stdout.into()])?;
    Ok((process, input, lines_of(output)))
}

/// Reads lines in a thread: a pipe cannot be read with a time limit.
pub fn lines_of(input: impl io::Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(input).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn program(path: &Path, verb: &str, job: &impl Serialize) -> io::Result<Command> {
    let mut command = Command::new(path);
    command
        .arg0(verb)
        .arg(verb)
        .stderr(file_of(job)?)
        // The caller's directory must stay removable.
        .current_dir("/");
    environment::make(&mut command);
    Ok(command)
}

/// Writes a job to a file in memory. Any process may read a command line, and an argument has 128
/// KiB at most (`MAX_ARG_STRLEN`): too few for a thousand processes.
fn file_of(job: &impl Serialize) -> io::Result<File> {
    let mut file = unnamed("stasis-job")?;
    file.write_all(&serde_json::to_vec(job)?)?;
    Ok(file)
}

/// Makes a file in memory.
pub fn unnamed(name: &str) -> io::Result<File> {
    let made = |flags| memfd_create(name, MemfdFlags::CLOEXEC | flags);
    // `vm.memfd_noexec` may ask for the flag, which kernels before Linux 6.3 do not know.
    let file = match made(MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => made(MemfdFlags::empty())?,
        other => other?,
    };
    Ok(File::from(file))
}

fn spawn(mut command: Command, [input, output]: [Stdio; 2]) -> io::Result<Child> {
    command.stdin(input).stdout(output);
    keep_callers_limit(&mut command);
    let started = command.spawn()?;
    // A process that must stay in the caller's cgroups works as well, as long as they live.
    let _ = move_to_own_cgroup(started.id(), CGROUP);
    Ok(started)
}

/// The job of this process, if it was started as `verb`. Leaves the starter's session and name, and
/// closes inherited descriptors.
pub fn job_of<T: DeserializeOwned>(verb: &str, name: &CStr) -> Option<T> {
    job_with(verb, name, |_| Inherited::Closed)
}

/// As [`job_of`]; the job decides about inherited descriptors.
pub fn job_with<T: DeserializeOwned>(
    verb: &str,
    name: &CStr,
    inherited: impl FnOnce(&T) -> Inherited,
) -> Option<T> {
    if args_os().nth(1) != Some(OsString::from(verb)) {
        return None;
    }
    let job = serde_json::from_slice(&job_in_stderr().ok()?).ok()?;
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(name);
    let _ = close(inherited(&job));
    Some(job)
}

/// Why a transfer does not begin.
#[derive(Debug, thiserror::Error)]
pub enum NotBegun {
    /// The starter speaks a version of the interface that this program does not.
    #[error(
        "the `stasis` beside stasis-runtime is of another version (interface {given}, {} to {} \
         are served); install both of one version",
        interface::SERVED.start(),
        interface::SERVED.end()
    )]
    OtherInterface {
        /// The starter's version.
        given: String,
    },
    /// The process has more capabilities than it needs.
    #[error(transparent)]
    StillPrivileged(#[from] StillPrivileged),
}

/// As [`job_of`], of a transfer that [`start_transfer`] or [`start_talking_transfer`] has started.
/// Gives up the capabilities that [`Work::Images`] does not need.
pub fn transfer_of<T: DeserializeOwned>(verb: &str, name: &CStr) -> Option<Result<T, NotBegun>> {
    let given = args_os().nth(2).unwrap_or("none".into());
    let job = job_of::<Box<RawValue>>(verb, name)?;
    let served = served(&given.to_string_lossy());
    let may_begin = served.and_then(|()| Ok(Work::Images.give_up_others()?));
    let job = may_begin.map(|()| serde_json::from_str(job.get()).ok());
    job.transpose()
}

/// Checks the version that a starter has named.
fn served(given: &str) -> Result<(), NotBegun> {
    let option = format!("--{}=", interface::OPTION);
    let version = given.strip_prefix(&option).unwrap_or(given);
    let number = version.parse();
    match number.is_ok_and(|number| interface::SERVED.contains(&number)) {
        true => Ok(()),
        false => Err(NotBegun::OtherInterface {
            given: version.to_owned(),
        }),
    }
}

/// Reads what [`file_of`] has written, and puts `/dev/null` in its place.
fn job_in_stderr() -> io::Result<Vec<u8>> {
    let mut job = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        // If called by hand, it has no file there (ESPIPE), or one for writing (EBADF).
        match pread(stderr(), &mut job[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match job.len() {
            MAX_JOB => return Err(io::ErrorKind::FileTooLarge.into()),
            size if size == length => job.resize(MAX_JOB.min(size * 2), 0),
            _ => {}
        }
    }
    job.truncate(length);
    dup2_stderr(File::options().write(true).open("/dev/null")?)?;
    Ok(job)
}

/// Sends a message to the starter, as a line of its own.
///
/// # Errors
/// No process reads it any more.
pub fn say(message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let error = start_transfer("stasis-test", &()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/stasis: "), "{error}");
    }

    #[test]
    fn a_starter_of_another_version_is_refused() {
        served(&interface::argument()).unwrap();
        for other in [
            "--stasis-interface=0",
            "--stasis-interface=2",
            "--stasis-interface",
            "none",
            "x",
        ] {
            served(other).unwrap_err();
        }
        let error = served("--stasis-interface=2").unwrap_err().to_string();
        assert!(
            error.contains("(interface 2, 1 to 1 are served)"),
            "{error}"
        );
    }

    #[test]
    fn a_job_of_any_size_is_in_its_file_and_in_no_argument() {
        let job = vec!["process".to_owned(); 100_000];
        let command = program(OWN.as_ref(), "stasis-test", &job).unwrap();
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["stasis-test"]);
        let file = file_of(&job).unwrap();
        let mut written = vec![0; 2 << 20];
        let length = pread(&file, &mut written, 0).unwrap();
        let read: Vec<String> = serde_json::from_slice(&written[..length]).unwrap();
        assert_eq!(read, job);
    }
}
