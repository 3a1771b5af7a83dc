//! Has CRIU verify an image while it can still resume the tasks.
//!
//! CRIU starts an action script at several moments of a dump (criu/action-scripts.c). If the script
//! fails at `post-dump`, CRIU resumes the tasks, as after any failed dump (criu/cr-dump.c,
//! `cr_dump_finish`); after it CRIU ends them. The request of runc and crun names no script. A
//! configuration file does, and CRIU finds it by `CRIU_CONFIG_FILE` in its environment
//! (criu/config.c), which both pass on. The script is this program, by another name.
//!
//! If the tasks end, the script also removes CRIU's lock of their network (`network_lock.rs`). The
//! script is CRIU's child, so this is done even if all other processes are killed.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use stasis_gpu::cuda::gpu_use::CudaProcess;
use stasis_host::file_lock::lock_soon;
use stasis_linux::file::{self, Access, Durability};
use stasis_linux::process::network::network_of;

use crate::container::mounted::Mounted;
use crate::image::manifest::Manifest;
use crate::image::not_kept::NotKept;
use crate::image::pstree::{self, PstreeError};
use crate::image::{mounted, tmpfs};
use crate::low_level::network_lock;
use crate::request::AfterDump;

/// The environment variable by which CRIU finds a configuration file.
pub(super) const VARIABLE: &str = "CRIU_CONFIG_FILE";
/// Pids, with spaces in between.
const NOT_DUMPED: &str = "STASIS_NOT_DUMPED";
/// JSON of [`Mounted`].
const MOUNTED: &str = "STASIS_MOUNTED";
/// Names below the state directory, for dumps that resume the tasks and dumps that end them.
const CONFIGURATION: [&str; 2] = ["criu-dump.conf", "criu-dump-end.conf"];
const SCRIPT: [&str; 2] = ["criu-post-dump", "criu-post-dump-end"];

/// Writes the configuration files for dumps, and returns the path of the one to use; `None` if CRIU
/// cannot be made to run the script. The image is then verified only after the dump.
pub(crate) fn prepare(state_dir: &Path, after: AfterDump) -> io::Result<Option<PathBuf>> {
    let program = env::current_exe()?;
    // A replaced program has no path. A caller's variable of this name does not reach CRIU.
    if !program.exists() {
        return Ok(None);
    }
    // Writes both: the directory's contents do not depend on the order of calls.
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

/// Returns the configuration file's text; `None` for a path that CRIU's parser would split.
fn statement(script: &Path) -> Option<Vec<u8>> {
    let path = script.as_os_str().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !br#""\#"#.contains(byte);
    let statement = || [b"action-script ", path, b"\n"].concat();
    path.iter().all(is_plain).then(statement)
}

/// Passes the script the CUDA processes that must not be in the image, and the directories.
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

/// The dump for which CRIU started this process.
#[derive(Debug)]
pub struct PostDump {
    /// `None` at any other moment of a dump.
    image: Option<PathBuf>,
    /// The first of the tasks.
    first: Option<i32>,
    /// Whether the tasks resume.
    after: AfterDump,
}

impl PostDump {
    /// Returns the script's job, if CRIU started this process.
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

    /// Verifies the image. The engine has checked before that the processes with GPU state exist;
    /// one may have ended since, and without our plugin no other check sees the tasks stopped.
    ///
    /// # Errors
    /// [`PstreeError`]: the image would not restore.
    pub fn verify(&self) -> Result<(), PstreeError> {
        let Some(image) = &self.image else {
            return Ok(());
        };
        tmpfs::verify(image)?;
        // The engine reports a manifest that cannot be read.
        match Manifest::read(image) {
            Ok(Some(manifest)) => pstree::verify(image, &manifest.processes, &told()),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Adds state of the stopped tasks that CRIU does not keep, and files of directories that end
    /// with them. Returns an error that leaves something out, but does not prevent a restore.
    ///
    /// # Errors
    /// An I/O error, or an error of tar: the image would not restore.
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

    /// Removes CRIU's lock from the network of tasks that end. The image must have been verified:
    /// if the tasks resume, CRIU still has to keep packets from them.
    ///
    /// # Errors
    /// An I/O error, or iptables': no process can send in that network until a restore there.
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
