//! Has CRIU ask whether an image is whole while it can still let the tasks go on.
//!
//! CRIU starts an action script at several moments of a dump (criu/action-scripts.c). If that of
//! `post-dump` fails, CRIU lets the tasks go on, as after any failed dump (criu/cr-dump.c,
//! `cr_dump_finish`); after it CRIU ends them. The request of runc and crun names no script. A
//! configuration file does, and CRIU finds it by `CRIU_CONFIG_FILE` in its environment
//! (criu/config.c), which both hand on. The script is this program, by another name.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use stasis_linux::file::{self, Access, Durability};

use crate::host::file_lock::lock_soon;
use crate::image::pstree::PstreeError;
use crate::image::tmpfs;
use crate::low_level::criu_version::CriuVersion;

/// The environment variable that CRIU takes a configuration file from.
pub(super) const VARIABLE: &str = "CRIU_CONFIG_FILE";
/// Both are below the state directory.
const CONFIGURATION: &str = "criu-dump.conf";
const SCRIPT: &str = "criu-post-dump";

/// Writes the configuration file for dumps by this CRIU, and returns its path; `None` if it cannot
/// be made to ask. The image is then verified after the dump alone.
///
/// # Errors
/// An I/O error.
pub(crate) fn prepare(state_dir: &Path, criu: Option<CriuVersion>) -> io::Result<Option<PathBuf>> {
    let program = env::current_exe()?;
    let script = state_dir.join(SCRIPT);
    // CRIU 3.17 aborts if it has a script and a caller that wants to be notified. A program that
    // was replaced has no path. A caller's variable of this name does not reach CRIU.
    let asks = criu.is_some_and(|version| version >= CriuVersion::WITH_HOOKS);
    if !asks || !program.exists() {
        return Ok(None);
    }
    let Some(statement) = statement(&script) else {
        return Ok(None);
    };
    let configuration = state_dir.join(CONFIGURATION);
    let is_linked = || fs::read_link(&script).is_ok_and(|target| target == program);
    let is_written = || fs::read(&configuration).is_ok_and(|text| text == statement);
    if is_linked() && is_written() {
        return Ok(Some(configuration));
    }
    // Another operation's temporary files have the same names.
    let turn = File::open(state_dir)?;
    lock_soon(&turn)?;
    if !is_linked() {
        link(&program, &script)?;
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

/// The image that this process was started to verify.
#[derive(Debug)]
pub struct PostDump {
    /// `None` at any other moment of a dump.
    image: Option<PathBuf>,
}

impl PostDump {
    /// What CRIU started this process for, if CRIU did.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let name = env::args_os().next()?;
        if Path::new(&name).file_name()? != SCRIPT {
            return None;
        }
        let is_moment = env::var_os("CRTOOLS_SCRIPT_ACTION")? == "post-dump";
        let image = PathBuf::from(env::var_os("CRTOOLS_IMAGE_DIR")?);
        Some(Self {
            // CRIU gives the path of its descriptor.
            image: is_moment.then(|| fs::canonicalize(&image).unwrap_or(image)),
        })
    }

    /// # Errors
    /// [`PstreeError`]: the image would not restore.
    pub fn verify(&self) -> Result<(), PstreeError> {
        self.image.as_deref().map_or(Ok(()), tmpfs::verify)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRIU: Option<CriuVersion> = Some(CriuVersion::WITH_HOOKS);

    #[test]
    fn the_configuration_names_this_program() {
        let state = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let configuration = prepare(state.path(), CRIU).unwrap().unwrap();
            let script = state.path().join(SCRIPT);
            assert_eq!(
                fs::read_to_string(configuration).unwrap(),
                format!("action-script {}\n", script.display())
            );
            assert_eq!(fs::read_link(script).unwrap(), env::current_exe().unwrap());
            assert_eq!(fs::read_dir(state.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn operations_may_prepare_at_the_same_time() {
        let state = tempfile::tempdir().unwrap();
        for _ in 0..200 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| prepare(state.path(), CRIU).unwrap().unwrap());
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
        assert_eq!(prepare(state.path(), None).unwrap(), None);
        let odd = state.path().join("of \"state\"");
        fs::create_dir(&odd).unwrap();
        assert_eq!(prepare(&odd, CRIU).unwrap(), None);
        assert_eq!(fs::read_dir(&odd).unwrap().count(), 0);
    }

    #[test]
    fn only_criu_starts_this_program_to_verify_an_image() {
        assert!(PostDump::of_this_process().is_none());
    }
}
