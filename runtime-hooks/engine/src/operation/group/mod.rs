//! The decision between the outcomes of a checkpoint, or a restore, of several containers.
//!
//! The parent makes a file in the directory of the images before it starts anything. Once all
//! images are on disk it renames the file to `group.json`, in one step: the checkpoint is complete.
//! If there cannot be one it removes the file. No other process touches it, so the file shows the
//! parent's decision, and if the parent has ended without one, there is no checkpoint. A parent
//! that does not decide in time is killed first. A restore has such files as well, in a directory
//! of their own ([`restore`]).

pub mod restore;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_linux::ProcessRef;
use stasis_linux::file::{self, Access, Durability};

use crate::request::AfterDump;

/// The file of a complete checkpoint.
pub const FILE_NAME: &str = "group.json";
/// The prefix of the file until then, followed by the group's id.
const PENDING: &str = ".stasis-group-";
/// Some hundred bytes for each container.
const MAX_BYTES: u64 = 16 << 20;
const POLL: Duration = Duration::from_millis(20);
/// How long a parent may take to end after SIGKILL.
const ENDING: Duration = Duration::from_secs(10);

/// The group of a checkpoint, as in the record of each of its operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its unique id.
    id: String,
    /// The directory of its images, which have a directory each.
    directory: PathBuf,
    /// Whether its containers resume once all images are complete.
    after: AfterDump,
    /// The process that decides.
    parent: ProcessId,
    /// The engine of this container, which removes ended containers.
    engine: Option<String>,
}

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFile {
    /// The id of the group.
    pub id: String,
    /// RFC 3339
    pub(crate) created: String,
    pub(crate) after: AfterDump,
    parent: ProcessId,
    /// Its containers.
    pub containers: Vec<GroupMember>,
}

/// A container of the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// The id of the container.
    pub id: String,
    /// The directory of its low-level runtime.
    pub root: PathBuf,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The engine that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The name of its image in the group's directory.
    pub image: String,
}

/// The parent's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// All images are complete, and each container resumes or ends, as requested.
    Complete,
    /// There is no checkpoint, and each container goes back to the state in which it was found.
    Abandoned,
}

/// The parent's handle of the group.
#[derive(Debug)]
pub struct NewGroup {
    pending: PathBuf,
    complete: PathBuf,
}

impl NewGroup {
    /// Makes the file, on disk. This process is the parent.
    pub fn begin(
        directory: &Path,
        created: String,
        after: AfterDump,
        containers: Vec<GroupMember>,
    ) -> io::Result<Self> {
        let id = format!("{:032x}", fastrand::u128(..));
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let own = ProcessRef::open(pid)?.ok_or(io::ErrorKind::NotFound)?;
        let pending = directory.join(format!("{PENDING}{id}"));
        let group = GroupFile {
            id,
            created,
            after,
            parent: ProcessId::of(&own),
            containers,
        };
        let text = serde_json::to_vec_pretty(&group)?;
        file::check_size(text.len() as u64, MAX_BYTES)?;
        file::replace(&pending, &text, Access::Private, Durability::Durable)?;
        let complete = directory.join(FILE_NAME);
        Ok(Self { pending, complete })
    }

    /// The file's path until the decision.
    pub fn pending(&self) -> &Path {
        &self.pending
    }

    /// All images are on disk: from here on the checkpoint is complete, whichever process ends.
    ///
    /// # Errors
    /// An I/O error: it is not complete, and can only be abandoned.
    pub fn complete(&self) -> io::Result<()> {
        fs::rename(&self.pending, &self.complete)
    }

    /// Makes the decision survive a crash of the machine, if the disk takes it. All else is on
    /// disk.
    pub fn sync(&self) {
        let _ = self.complete.parent().map(file::sync_directory);
    }

    /// There is no checkpoint. If the file cannot be removed, this process's end decides the same.
    pub fn abandon(&self) {
        let _ = fs::remove_file(&self.pending);
    }
}

/// Removes files of killed parents without a decision from a directory that no parent uses.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::ResourceBusy`] if a living parent has begun there.
pub fn clear_undecided(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(PENDING) {
            continue;
        }
        let parent = read(&path)?.map(|group| group.parent.open()).transpose()?;
        if parent.flatten().is_some() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        file::remove(&path)?;
    }
    Ok(())
}

/// Returns the group whose images are in a directory; `None` if there is none, or it is incomplete.
///
/// # Errors
/// An I/O error, also for a file that is not ours.
pub fn find(directory: &Path) -> io::Result<Option<GroupFile>> {
    read(&directory.join(FILE_NAME))
}

/// Returns whether the group of this id, whose images are in a directory, is complete.
///
/// # Errors
/// An I/O error, also for a file that is not ours.
pub(crate) fn is_complete(directory: &Path, id: &str) -> io::Result<bool> {
    let group = read(&directory.join(FILE_NAME))?;
    Ok(group.is_some_and(|group| group.id == id))
}

/// Returns the decision on the group with this id; `None`: there is none yet.
fn decision_in(directory: &Path, id: &str) -> io::Result<Option<Decision>> {
    // Looks for the pending file first: if it is renamed meanwhile, it is found by its new name.
    let pending = directory.join(format!("{PENDING}{id}"));
    match pending.symlink_metadata() {
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(Some(match is_complete(directory, id)? {
        true => Decision::Complete,
        false => Decision::Abandoned,
    }))
}

/// The same for processes outside the group: `None` only as long as its parent lives.
pub(crate) fn decision_of(directory: &Path, id: &str) -> io::Result<Option<Decision>> {
    let group = read(&directory.join(format!("{PENDING}{id}")))?;
    let parent = group
        .map(|group| group.parent.open())
        .transpose()?
        .flatten();
    // The parent first: a decision before its end is visible then.
    let decision = decision_in(directory, id)?;
    Ok(decision.or_else(|| parent.is_none().then_some(Decision::Abandoned)))
}

fn read(path: &Path) -> io::Result<Option<GroupFile>> {
    let text = file::read(path, MAX_BYTES)?;
    Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
}

impl Group {
    /// Reads a container's group from its parent's file.
    ///
    /// # Errors
    /// An I/O error, also if the file does not name the container.
    pub(crate) fn of_container(pending: &Path, root: &Path, id: &str) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let group = read(pending)?.ok_or(io::ErrorKind::NotFound)?;
        let mut containers = group.containers.into_iter();
        let own = containers.find(|container| container.id == id && container.root == root);
        let own = own.ok_or_else(|| invalid("the group does not name the container"))?;
        let directory = pending.parent().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self {
            id: group.id,
            directory: directory.to_owned(),
            after: group.after,
            parent: group.parent,
            engine: own.engine,
        })
    }

    /// The id of the group.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn after(&self) -> AfterDump {
        self.after
    }

    /// Whether an engine removes the container once it has ended.
    pub(crate) fn is_of_engine(&self) -> bool {
        self.engine.is_some()
    }

    /// Waits for the parent's decision. A parent without one at the deadline is killed: its
    /// unfinished group is abandoned then.
    ///
    /// # Errors
    /// An I/O error: the decision is not known.
    pub(crate) fn wait_for_decision(&self, limit: Duration) -> io::Result<Decision> {
        let deadline = Instant::now() + limit;
        loop {
            let parent = self.parent.open()?;
            // The parent first: a decision before its end is visible then.
            match (self.decision()?, &parent) {
                (Some(decision), _) => return Ok(decision),
                (None, None) => return Ok(Decision::Abandoned),
                (None, Some(_)) if Instant::now() > deadline => self.end_parent()?,
                (None, Some(_)) => sleep(POLL),
            }
        }
    }

    /// Kills a parent that hangs.
    ///
    /// # Errors
    /// The parent does not end.
    pub(crate) fn end_parent(&self) -> io::Result<()> {
        let Some(parent) = self.parent.open()? else {
            return Ok(());
        };
        parent.kill()?;
        match parent.outlives(ENDING)? {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Makes a decision for which containers have ended survive a crash of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        file::sync_directory(&self.directory)
    }

    fn decision(&self) -> io::Result<Option<Decision>> {
        decision_in(&self.directory, &self.id)
    }
}

#[cfg(test)]
mod tests;
