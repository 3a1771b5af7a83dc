//! How many images pulled for new containers are kept: the images that were used last.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stasis_engine::image::directory::in_use::hold_alone;
use stasis_engine::image::retention::{Candidate, Completeness, Rule, not_kept, state_of};
use stasis_engine::operation::awaited_start::AwaitedStart;
use stasis_lifecycle::at_create::pulled::remove;
use stasis_memory_store::refuse_arriving;

/// Removes all but the last `keep` whole ones of the directories below this one: images, and rests
/// of pulls that were cut off. A directory in use stays, and one that cannot be removed stays for
/// the next time.
pub(super) fn keep_last(below: &Path, keep: usize, state_dir: &Path) {
    let (Ok(found), Ok(awaited)) = (with_last_use(below), AwaitedStart::all(state_dir)) else {
        return;
    };
    let candidate = |(used, directory): &(SystemTime, PathBuf)| {
        let place = fs::canonicalize(directory).ok();
        Candidate {
            order: (*used, directory.clone()),
            created: None,
            state: state(directory),
            is_used: awaited
                .iter()
                .any(|(_, start)| Some(&start.image) == place.as_ref()),
        }
    };
    let set: Vec<_> = found.iter().map(candidate).collect();
    for going in not_kept(&set, Rule::last(keep)) {
        let (_, directory) = &found[going.index];
        if !going.is_used
            && let Ok(Some(_alone)) = hold_alone(directory)
        {
            let _ = remove(directory);
        }
    }
}

/// Returns the state; an image that has arrived in part is no rest: the next pull resumes it.
fn state(directory: &Path) -> Completeness {
    // A pulled image has all its contents in its directory.
    match state_of(directory, |_| false) {
        Completeness::CutOff => Completeness::Doubtful,
        state => match refuse_arriving(directory) {
            Ok(()) => state,
            Err(_) => Completeness::Doubtful,
        },
    }
}

/// Lists directories, each with the time of its last use.
fn with_last_use(below: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            found.push((metadata.modified()?, entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use stasis_engine::image::directory::INVENTORY;
    use stasis_engine::image::directory::in_use::hold;

    fn names_in(below: &Path) -> Vec<OsString> {
        let left = with_last_use(below).unwrap();
        let names = left.iter().filter_map(|(_, path)| path.file_name());
        let mut names: Vec<_> = names.map(OsString::from).collect();
        names.sort();
        names
    }

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
        assert_eq!(names_in(below), ["sha256-a", "sha256-b"]);
        drop(used);
        keep_last(below, 0, &below.join("state"));
        assert!(with_last_use(below).unwrap().is_empty());
    }

    /// The next pull goes on from what is left, and makes the image anew.
    #[test]
    fn what_is_left_of_a_removal_is_not_in_the_place_of_the_image() {
        let below = tempfile::tempdir().unwrap();
        let below = below.path();
        let image = below.join("sha256-a");
        // A directory, which is not removed, cuts the removal off.
        fs::create_dir_all(image.join("cuts it off")).unwrap();
        fs::write(image.join(INVENTORY), "inventory").unwrap();
        keep_last(below, 0, &below.join("state"));
        assert_eq!(names_in(below), [".sha256-a.stasis-pull"]);
    }

    #[test]
    fn what_arrived_in_part_takes_the_place_of_no_whole_one() {
        let below = tempfile::tempdir().unwrap();
        let below = below.path();
        let make = |name: &str, second: u64| {
            let directory = below.join(name);
            fs::create_dir(&directory).unwrap();
            if name == "whole" {
                fs::write(directory.join(INVENTORY), "inventory").unwrap();
            }
            let used = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            let opened = File::open(&directory).unwrap();
            opened.set_modified(used).unwrap();
        };
        make("whole", 2);
        make(".later.stasis-pull", 3);
        make(".earlier.stasis-pull", 1);
        keep_last(below, 1, &below.join("state"));
        assert_eq!(names_in(below), [".later.stasis-pull", "whole"]);
    }
}
