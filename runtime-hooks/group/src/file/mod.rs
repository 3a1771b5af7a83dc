//! The file that decides the outcome of a group: its parent's handle of it, and its containers.
//!
//! A restore has such files as well, in a directory of their own ([`restore`]).

pub mod restore;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stasis_engine::operation::outcome::{COMPLETE, MAX_BYTES, PENDING, SharedOutcome};
use stasis_engine::request::AfterDump;
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_host::json_record;
use stasis_linux::ProcessRef;
use stasis_linux::file::{self, Access, Durability};

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFile {
    /// The id of the group.
    pub id: String,
    /// RFC 3339
    created: String,
    after: AfterDump,
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
        let pending = directory.join(format!("{PENDING}{id}"));
        let group = GroupFile {
            id,
            created,
            after,
            parent: ProcessId::of(&ProcessRef::own()?),
            containers,
        };
        let text = serde_json::to_vec_pretty(&group)?;
        file::check_size(text.len() as u64, MAX_BYTES)?;
        file::replace(&pending, &text, Access::Private, Durability::Durable)?;
        let complete = directory.join(COMPLETE);
        Ok(Self { pending, complete })
    }

    /// The file's path until the decision.
    pub fn pending(&self) -> &Path {
        &self.pending
    }

    /// All images are on disk: from here on the checkpoint is complete, whichever process ends.
    ///
    /// # Errors
    /// An I/O error, also if another group is complete there: this one is not, and can only be
    /// abandoned.
    pub fn complete(&self) -> io::Result<()> {
        let (from, to) = (&self.pending, &self.complete);
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // NFS, for one, only replaces files.
            Err(Errno::INVAL) if !to.try_exists()? => fs::rename(from, to),
            renamed => Ok(renamed?),
        }
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
    read(&directory.join(COMPLETE))
}

fn read(path: &Path) -> io::Result<Option<GroupFile>> {
    json_record::read(path, MAX_BYTES)
}

/// Reads the outcome that a container shares from its parent's file.
///
/// # Errors
/// An I/O error, also if the file does not name the container.
pub(crate) fn outcome_of(pending: &Path, root: &Path, id: &str) -> io::Result<SharedOutcome> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let group = read(pending)?.ok_or(io::ErrorKind::NotFound)?;
    let mut containers = group.containers.into_iter();
    let own = containers.find(|container| container.id == id && container.root == root);
    let own = own.ok_or_else(|| invalid("the group does not name the container"))?;
    let directory = pending.parent().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(SharedOutcome {
        id: group.id,
        directory: directory.to_owned(),
        after: group.after,
        parent: group.parent,
        engine: own.engine,
    })
}

#[cfg(test)]
mod tests;
