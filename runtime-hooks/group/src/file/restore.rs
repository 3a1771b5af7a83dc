//! The decision on a restore of several containers: below the state directory, since images are
//! only read.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use stasis_engine::operation::outcome::{COMPLETE, PENDING};
use stasis_engine::request::AfterDump;
use stasis_linux::file;

use super::{GroupMember, NewGroup, read};

/// The directory of all, below the state directory.
const RESTORES: &str = "restores";

impl NewGroup {
    /// Makes the file of a restore. This process decides.
    pub fn begin_restore(
        state_dir: &Path,
        created: String,
        containers: Vec<GroupMember>,
    ) -> io::Result<Self> {
        let name = format!("{:032x}", fastrand::u128(..));
        let directory = state_dir.join(RESTORES).join(name);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory)?;
        Self::begin(&directory, created, AfterDump::LeaveRunning, containers)
    }

    /// Removes the decision of a restore, once no operation needs it: `is_needed` returns for an id
    /// whether a killed operation still does. The next restore tries again.
    pub fn forget(&self, is_needed: impl Fn(&str) -> bool) {
        let name = self
            .pending
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let id = name.strip_prefix(PENDING).unwrap_or_default();
        if !is_needed(id) {
            let _ = self.complete.parent().map(fs::remove_dir_all);
        }
    }
}

/// Removes the decisions of parents that were killed, if no operation needs them.
pub fn remove_left(state_dir: &Path, is_needed: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in file::entries(&state_dir.join(RESTORES))? {
        let directory = entry?.path();
        if is_left(&directory, &is_needed).unwrap_or(false) {
            let _ = fs::remove_dir_all(directory);
        }
    }
    Ok(())
}

/// One whose parent has not written its file yet is not.
fn is_left(directory: &Path, is_needed: impl Fn(&str) -> bool) -> io::Result<bool> {
    let Some(file) = file_in(directory)? else {
        return Ok(false);
    };
    let Some(group) = read(&file)? else {
        return Ok(false);
    };
    Ok(group.parent.open()?.is_none() && !is_needed(&group.id))
}

fn file_in(directory: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let is_ours = name == COMPLETE || name.to_string_lossy().starts_with(PENDING);
        if is_ours {
            return Ok(Some(directory.join(name)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_parent_has_decided_stays_as_long_as_it_is_needed() {
        let state = tempfile::tempdir().unwrap();
        let begin = || NewGroup::begin_restore(state.path(), String::new(), Vec::new()).unwrap();
        let (alive, killed) = (begin(), begin());
        killed.complete().unwrap();
        let text = fs::read(&killed.complete).unwrap();
        let mut group: super::super::GroupFile = serde_json::from_slice(&text).unwrap();
        group.parent.start_time += 1;
        fs::write(&killed.complete, serde_json::to_vec(&group).unwrap()).unwrap();
        remove_left(state.path(), |id| id == group.id).unwrap();
        assert!(killed.complete.exists());
        remove_left(state.path(), |_| false).unwrap();
        assert!(!killed.complete.exists());
        assert!(alive.pending().exists());
        alive.forget(|_| true);
        assert!(alive.pending().exists());
        alive.forget(|_| false);
        assert!(!alive.pending().parent().unwrap().exists());
    }
}
