//! Has CRIU ask whether an image is whole while it can still let the tasks go on.
//!
//! CRIU starts an action script at several moments of a dump (criu/action-scripts.c). If that of
//! `post-dump` fails, CRIU lets the tasks go on, as after any failed dump (criu/cr-dump.c,
//! `cr_dump_finish`); after it CRIU ends them. The request of runc and crun names no script. A
//! configuration file does, and CRIU finds it by `CRIU_CONFIG_FILE` in its environment
//! (criu/config.c), which both hand on. The script is this program, by another name.
//!
//! Where the tasks end, the script takes CRIU's lock of their network away as well
//! (`network_lock.rs`). It belongs to CRIU, so that is done also if all others are killed.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use stasis_linux::file::{self, Access, Durability};
use stasis_linux::process::network::network_of;

use crate::container::mounted::Mounted;
use crate::cuda::gpu_use::CudaProcess;
use crate::host::file_lock::lock_soon;
use crate::image::manifest::Manifest;
use crate::image::not_kept::NotKept;
use crate::image::pstree::{self, PstreeError};
use crate::image::{mounted, tmpfs};
use crate::low_level::network_lock;
use crate::request::AfterDump;

/// The environment variable that CRIU takes a configuration file from.
pub(super) const VARIABLE: &str = "CRIU_CONFIG_FILE";
/// Pids, with spaces in between.
const NOT_DUMPED: &str = "STASIS_NOT_DUMPED";
/// JSON of [`Mounted`].
const MOUNTED: &str = "STASIS_MOUNTED";
/// All are below the state directory: of dumps that let the tasks go on, and of those that end
/// them.
const CONFIGURATION: [&str; 2] = ["criu-dump.conf", "criu-dump-end.conf"];
const SCRIPT: [&str; 2] = ["criu-post-dump", "criu-post-dump-end"];

/// Writes the configuration file for dumps, and returns its path; `None` if CRIU cannot be made to
/// ask. The image is then verified after the dump alone.
pub(crate) fn prepare(state_dir: &Path, after: AfterDump) -> io::Result<Option<PathBuf>> {
    let program = env::current_exe()?;
    // A program that was replaced has no path. A caller's variable of this name does not reach
    // CRIU.
    if !program.exists() {
        return Ok(None);
    }
    // What stays in the directory does not depend on which of them came first.
    let [going_on, ending] =
        [0, 1].map(|of| write(state_dir, &program, (SCRIPT[of], CONFIGURATION[of])));
    match after {
        AfterDump::LeaveRunning => going_on,
        AfterDump::Exit => ending,
    }
}

/// Writes a configuration file that names this program as CRIU's script, by another name.
pub(super) fn write(
    state_dir: &Path,
    program: &Path,
    (script, configuration): (&str, &str),
) -> io::Result<Option<PathBuf>> {
    let script = state_dir.join(script);
    let Some(statement) = statement(&script) else {
        return Ok(None);
    };
    let configuration = state_dir.join(configuration);
    let is_linked = || fs::read_link(&script).is_ok_and(|target| target == program);
    let is_written = || fs::read(&configuration).is_ok_and(|text| text == statement);
    if is_linked() && is_written() {
        return Ok(Some(configuration));
    }
    // Another operation's temporary files have the same names.
    let turn = File::open(state_dir)?;
    lock_soon(&turn)?;
    if !is_linked() {
        link(program, &script)?;
    }
    let (access, durability) = (Access::Private, Durability::Volatile);
    file::replace(&configuration, &statement, access, durability)?;
    Ok(Some(configuration))
}

/// Replaces a symbolic link in one go: another operation's CRIU may be about to follow it.
fn link(target: &Path, link: &Path) -> io::Result<()> {
    let new = link.with_extension("new");
    file::remove(&new)?;
    symlink(target, &new)?;
    fs::rename(&new, link)
}

/// What CRIU's configuration file says; `None` for a path that CRIU's parser would take apart.
fn statement(script: &Path) -> Option<Vec<u8>> {
    let path = script.as_os_str().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !br#""\#"#.contains(byte);
    let statement = || [b"action-script ", path, b"\n"].concat();
    path.iter().all(is_plain).then(statement)
}

/// Tells the script which CUDA processes are not to be in the image, and what files there are.
pub(super) fn tell(command: &mut Command, not_dumped: &[i32], mounted: &[Mounted]) {
    let pids: Vec<String> = not_dumped.iter().map(i32::to_string).collect();
    command.env(NOT_DUMPED, pids.join(" "));
    let mounted = serde_json::to_string(mounted).unwrap_or_default();
    command.env(MOUNTED, mounted);
}

fn told() -> Vec<CudaProcess> {
    let pids = env::var(NOT_DUMPED).unwrap_or_default();
    let pids = pids.split(' ').filter_map(|pid| pid.parse().ok());
    let of_exec = |pid| CudaProcess {
        pid,
        name: "of exec".to_owned(),
        gpus: Vec::new(),
    };
    pids.map(of_exec).collect()
}

/// The dump that this process was started to judge.
#[derive(Debug)]
pub struct PostDump {
    /// `None` at any other moment of a dump.
    image: Option<PathBuf>,
    /// The first of the tasks.
    first: Option<i32>,
    /// What becomes of them.
    after: AfterDump,
}

impl PostDump {
    /// What CRIU started this process for, if CRIU did.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let name = env::args_os().next()?;
        let name = Path::new(&name).file_name()?;
        let names = SCRIPT.iter().position(|script| name == *script)?;
        let is_moment = env::var_os("CRTOOLS_SCRIPT_ACTION")? == "post-dump";
        let image = PathBuf::from(env::var_os("CRTOOLS_IMAGE_DIR")?);
        let first = || env::var("CRTOOLS_INIT_PID").ok()?.parse().ok();
        Some(Self {
            // CRIU gives the path of its descriptor.
            image: is_moment.then(|| fs::canonicalize(&image).unwrap_or(image)),
            first: first(),
            after: match names {
                0 => AfterDump::LeaveRunning,
                _ => AfterDump::Exit,
            },
        })
    }

    /// The engine has looked before whether the processes with GPU state are there; one may have
    /// ended since, and without our plugin nobody else has seen the tasks when they stood still.
    ///
    /// # Errors
    /// [`PstreeError`]: the image would not restore.
    pub fn verify(&self) -> Result<(), PstreeError> {
        let Some(image) = &self.image else {
            return Ok(());
        };
        tmpfs::verify(image)?;
        // One that cannot be read is for the engine to report.
        match Manifest::read(image) {
            Ok(Some(manifest)) => pstree::verify(image, &manifest.processes, &told()),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Puts into the image what CRIU does not keep of the tasks, which stand still, and the files
    /// of directories that end with them. Returns what is not in it, and does not keep it from
    /// being restored.
    ///
    /// # Errors
    /// An I/O error, or that of tar: the image would not restore.
    pub fn store_not_kept(&self) -> io::Result<Option<io::Error>> {
        let (Some(image), Some(first)) = (&self.image, self.first) else {
            return Ok(None);
        };
        let all: Vec<Mounted> = match env::var(MOUNTED) {
            Ok(told) => serde_json::from_str(&told)?,
            Err(_) => Vec::new(),
        };
        let files = mounted::store(&all, image)?;
        let are_carried = files.iter().any(|files| files.archive.is_some());
        let written = NotKept::of_tree(first, files).and_then(|facts| facts.write(image));
        match written {
            Err(error) if are_carried => Err(error),
            written => Ok(written.err()),
        }
    }

    /// Takes CRIU's lock away from the network of tasks that end. The image must have been
    /// verified: if the tasks go on, CRIU still has to keep packets from them.
    ///
    /// # Errors
    /// An I/O error, or that of iptables: nobody can send in that network until a restore there.
    pub fn unlock_network(&self) -> io::Result<()> {
        let (Some(image), Some(first), AfterDump::Exit) = (&self.image, self.first, self.after)
        else {
            return Ok(());
        };
        match network_of(first)? {
            Some(network) => network_lock::release(&network, image),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_this_program() {
        let state = tempfile::tempdir().unwrap();
        let both = [AfterDump::LeaveRunning, AfterDump::Exit];
        for (after, script) in both.into_iter().zip(SCRIPT).cycle().take(4) {
            let configuration = prepare(state.path(), after).unwrap().unwrap();
            let script = state.path().join(script);
            assert_eq!(
                fs::read_to_string(configuration).unwrap(),
                format!("action-script {}\n", script.display())
            );
            assert_eq!(fs::read_link(script).unwrap(), env::current_exe().unwrap());
            assert_eq!(fs::read_dir(state.path()).unwrap().count(), 4);
        }
    }

    #[test]
    fn operations_may_prepare_at_the_same_time() {
        let state = tempfile::tempdir().unwrap();
        for _ in 0..200 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| prepare(state.path(), AfterDump::Exit).unwrap().unwrap());
                }
            });
            for entry in fs::read_dir(state.path()).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }

    #[test]
    fn a_criu_that_cannot_be_asked_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let odd = state.path().join("of \"state\"");
        fs::create_dir(&odd).unwrap();
        assert_eq!(prepare(&odd, AfterDump::Exit).unwrap(), None);
        assert_eq!(fs::read_dir(&odd).unwrap().count(), 0);
    }

    #[test]
    fn only_criu_starts_this_program_to_verify_an_image() {
        assert!(PostDump::of_this_process().is_none());
    }
}
