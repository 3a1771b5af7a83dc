//! How many images are kept that were pulled for new containers: those that were used last.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stasis_linux::file;

use crate::image::directory::INVENTORY;
use crate::image::directory::in_use::hold_alone;
use crate::operation::awaited_start::AwaitedStart;

/// Removes all but the last `keep` of the directories below this one, images and what pulls that
/// were cut off have left of them. What somebody uses stays, and what cannot be removed stays for
/// the next time.
pub(super) fn keep_last(below: &Path, keep: usize, state_dir: &Path) {
    let (Ok(found), Ok(awaited)) = (by_last_use(below), AwaitedStart::all(state_dir)) else {
        return;
    };
    for directory in found.into_iter().skip(keep) {
        let is_of =
            |start: &AwaitedStart| fs::canonicalize(&directory).ok() == Some(start.image.clone());
        if awaited.iter().any(|(_, start)| is_of(start)) {
            continue;
        }
        if let Ok(Some(_alone)) = hold_alone(&directory) {
            let _ = remove(&directory);
        }
    }
}

/// The last one first.
fn by_last_use(below: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(below)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            found.push((metadata.modified()?, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().rev().map(|(_, path)| path).collect())
}

/// What is pulled has files alone. What lacks any of them must not look complete.
fn remove(directory: &Path) -> io::Result<()> {
    file::remove(&directory.join(INVENTORY))?;
    for entry in fs::read_dir(directory)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::image::directory::in_use::hold;

    #[test]
    fn those_used_last_and_those_in_use_are_kept() {
        let below = tempfile::tempdir().unwrap();
        let below = below.path();
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        for (age, name) in (1..).zip(["sha256-a", "sha256-b", ".sha256-c.stasis-pull", "sha256-d"])
        {
            let directory = below.join(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join(INVENTORY), "inventory").unwrap();
            let opened = File::open(&directory).unwrap();
            opened
                .set_modified(began - Duration::from_secs(age))
                .unwrap();
        }
        let used = hold(&below.join("sha256-b")).unwrap();
        keep_last(below, 1, &below.join("state"));
        let mut left = by_last_use(below).unwrap();
        left.sort();
        let names: Vec<_> = left.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["sha256-a", "sha256-b"]);
        drop(used);
        keep_last(below, 0, &below.join("state"));
        assert!(by_last_use(below).unwrap().is_empty());
    }
}
