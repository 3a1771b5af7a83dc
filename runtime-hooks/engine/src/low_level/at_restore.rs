//! Has a script of CRIU's (`post_dump.rs`) set up at a restore the parts that neither CRIU nor the
//! low-level runtime does, at two moments before anything of the container runs.
//!
//! * **The network that the restore makes.** runc has CRIU leave the contents of such a network out
//!   of the image (`CLONE_NEWNET` in `empty_ns`), and brings its loopback device up at a create
//!   alone. It comes up as soon as the network is there: before the sockets, which need an address
//!   to be bound to. crun has CRIU dump and restore it.
//! * **State that CRIU does not keep** (`image/not_kept.rs`), at `pre-resume`: all is restored, and
//!   CRIU still has the tasks stopped (criu/cr-restore.c, `restore_root_task`).

use std::env;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use stasis_config::Flavor;
use stasis_host::json_record;
use stasis_linux::file;
use stasis_linux::process::network::{bring_loopback_up, in_network, network_of};

use crate::container::spec::Spec;
use crate::image::not_kept::{self, NotKept};
use crate::low_level::post_dump;

/// Names below the state directory, for restores into an existing network and into a new one.
const SCRIPT: [&str; 2] = ["criu-restore", "criu-restore-new-network"];
const CONFIGURATION: [&str; 2] = ["criu-restore.conf", "criu-restore-new-network.conf"];
/// The environment variable with the file for the script's notes.
const NOTES: &str = "STASIS_RESTORE_NOTES";
/// More than the size of all notes, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The script's configuration for one restore.
#[derive(Debug)]
pub(super) struct AtRestore {
    configuration: PathBuf,
    notes: PathBuf,
}

impl AtRestore {
    /// Prepares the restore of an image into a bundle; `None` if nothing is to be set up. The
    /// script's notes come by way of the operation's `directory`.
    pub(super) fn prepare(
        state_dir: &Path,
        flavor: Flavor,
        (image, bundle): (&Path, &Path),
        directory: &Path,
    ) -> io::Result<Option<Self>> {
        // The low-level runtime reports a specification that cannot be read.
        let is_new = |spec: Spec| spec.has_own_namespace("network");
        let is_new = flavor == Flavor::Runc && Spec::read(bundle).is_ok_and(is_new);
        let has_some = image.join(not_kept::FILE_NAME).exists();
        let program = env::current_exe()?;
        // A replaced program has no path, and CRIU fails without its script.
        let is_needed = is_new || (has_some && program.exists());
        if !is_needed {
            return Ok(None);
        }
        let of = usize::from(is_new);
        let names = (SCRIPT[of], CONFIGURATION[of]);
        let configuration = post_dump::write(state_dir, &program, names)?;
        let notes = notes_file(directory);
        file::remove(&notes)?;
        Ok(configuration.map(|configuration| Self {
            configuration,
            notes,
        }))
    }

    /// Passes it to a program that will start CRIU.
    pub(super) fn give(&self, command: &mut Command) {
        command.env(post_dump::VARIABLE, &self.configuration);
        command.env(NOTES, &self.notes);
    }
}

fn notes_file(directory: &Path) -> PathBuf {
    directory.join("restore-notes.json")
}

/// The script's notes of a restore that has succeeded.
pub(super) fn notes(directory: &Path, image: &Path) -> Vec<String> {
    if !image.join(not_kept::FILE_NAME).exists() {
        return Vec::new();
    }
    let path = notes_file(directory);
    let notes = json_record::read(&path, MAX_BYTES).ok().flatten();
    let _ = file::remove(&path);
    notes.unwrap_or_else(|| {
        let text = "what CRIU does not keep was not put back: its script has not run";
        vec![text.to_owned()]
    })
}

/// The restore for which this process was started.
#[derive(Debug)]
pub struct RestoreScript(Option<Moment>);

/// A moment of a restore, with the first process of the container.
#[derive(Debug)]
enum Moment {
    NewNetwork(i32),
    BeforeResume(i32),
}

impl RestoreScript {
    /// Returns the script's job, if CRIU started this process.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let name = env::args_os().next()?;
        let name = Path::new(&name).file_name()?;
        let names = SCRIPT.iter().position(|script| name == *script)?;
        let moment = env::var_os("CRTOOLS_SCRIPT_ACTION")?;
        let first = || env::var("CRTOOLS_INIT_PID").ok()?.parse().ok();
        Some(Self(match moment.to_str() {
            Some("post-setup-namespaces") if names == 1 => first().map(Moment::NewNetwork),
            Some("pre-resume") => first().map(Moment::BeforeResume),
            _ => None,
        }))
    }

    /// Runs the script's part.
    ///
    /// # Errors
    /// The error, with the step that failed.
    pub fn run(&self) -> io::Result<()> {
        match self.0 {
            None => Ok(()),
            Some(Moment::NewNetwork(first)) => set_up_network(first).map_err(|error| {
                let text = format!("cannot bring up lo in the container's network: {error}");
                io::Error::new(error.kind(), text)
            }),
            Some(Moment::BeforeResume(first)) => tell(&put_back(first)),
        }
    }
}

fn set_up_network(first: i32) -> io::Result<()> {
    match network_of(first)? {
        Some(network) => in_network(network.as_fd(), bring_loopback_up),
        None => Ok(()),
    }
}

/// Restores that state; returns notes.
fn put_back(first: i32) -> Vec<String> {
    let image = || {
        let image = env::var_os("CRTOOLS_IMAGE_DIR").ok_or(io::ErrorKind::NotFound)?;
        // CRIU gives the path of its descriptor.
        fs::canonicalize(image)
    };
    let found = image().and_then(|image| Ok(NotKept::read(&image)?.map(|it| (it, image))));
    match found {
        Ok(found) => found.map_or_else(Vec::new, |(it, image)| it.put_back(&image, first)),
        Err(error) => {
            let text = "what CRIU does not keep was not put back";
            vec![format!("{text} ({}): {error}", not_kept::FILE_NAME)]
        }
    }
}

fn tell(notes: &[String]) -> io::Result<()> {
    let Some(path) = env::var_os(NOTES) else {
        return Ok(());
    };
    json_record::write(Path::new(&path), notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_has_not_run_is_noted_and_a_note_is_read_once() {
        let [operation, image] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let notes = || notes(operation.path(), image.path());
        assert!(notes().is_empty());
        fs::write(image.path().join(not_kept::FILE_NAME), "").unwrap();
        assert_eq!(notes().len(), 1);
        fs::write(notes_file(operation.path()), r#"["one","two"]"#).unwrap();
        assert_eq!(notes(), ["one", "two"]);
        assert!(notes()[0].contains("has not run"));
    }

    #[test]
    fn criu_is_told_where_there_is_something_to_set_up() {
        let [state, image, operation] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let prepare = || {
            let places = (image.path(), Path::new("/nonexistent"));
            AtRestore::prepare(state.path(), Flavor::Crun, places, operation.path()).unwrap()
        };
        assert!(prepare().is_none());
        fs::write(image.path().join(not_kept::FILE_NAME), "").unwrap();
        let configuration = prepare().unwrap().configuration;
        assert_eq!(configuration, state.path().join(CONFIGURATION[0]));
        assert!(RestoreScript::of_this_process().is_none());
    }
}
