//! The tiers of bulk memory, and what operations have left.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;

use super::failed;
use super::parts::Parts;
use super::text::Family;
use crate::bulk_memory::kept::Kept;
use crate::bulk_memory::ram_tier;
use crate::bulk_memory::retention::why_left_over;
use crate::bulk_memory::stores::{Stores, names_in};
use crate::cli::command_error::CommandError;
use crate::cli::memory::list;
use crate::cli::recover::left_behind;
use crate::image::disk_space;

/// The unit of `st_blocks` (stat(2)).
const BLOCK: u64 = 512;

pub(super) fn families(settings: &Settings, parts: &mut Parts) -> Vec<Family> {
    let stores = Stores::of(settings);
    let [used, free] = tiers(&stores, parts);
    let state_dir = &settings.paths.state_dir;
    let operations = left_behind(state_dir).map_err(unread(state_dir));
    let operations = parts.read("leftover-operations", operations.map(|left| left.len()));
    let kept = list(settings).map_err(CommandError::from);
    let kept = parts.read("leftover-memory", kept);
    let [leftovers, bytes] = left_over(kept.as_deref(), operations);
    vec![used, free, leftovers, bytes]
}

fn unread(path: &Path) -> impl Fn(io::Error) -> CommandError {
    failed("read", path.display().to_string())
}

fn tiers(stores: &Stores, parts: &mut Parts) -> [Family; 2] {
    let mut used = Family::gauge(
        "stasis_memory_used_bytes",
        "What bulk memory takes that is kept apart from images, by its tier.",
    );
    let mut free = Family::gauge(
        "stasis_memory_free_bytes",
        "What its file system has free; absent for a tier that is not made yet.",
    );
    for (tier, directory) in [("disk", &stores.disk), ("ram", &stores.ram)] {
        let labels = [("tier", tier)];
        let Used { bytes, unreadable } = Used::of(directory);
        used.add(&labels, bytes as f64);
        let found = match unreadable {
            None => free_in(tier, directory).map_err(unread(directory)),
            Some((path, error)) => Err(unread(&path)(error)),
        };
        if let Some(Some(bytes)) = parts.read(&format!("memory-{tier}"), found) {
            free.add(&labels, bytes as f64);
        }
    }
    [used, free]
}

fn free_in(tier: &str, directory: &Path) -> io::Result<Option<u64>> {
    // Before it is mounted its directory is on another file system.
    let is_there = tier == "disk" || ram_tier::is_mounted(directory)?;
    match is_there {
        true => disk_space::free(directory),
        false => Ok(None),
    }
}

/// What the stores in a directory take. Files that several of them have count once.
#[derive(Debug)]
struct Used {
    bytes: u64,
    /// What could not be read, the first of it.
    unreadable: Option<(PathBuf, io::Error)>,
}

impl Used {
    fn of(parent: &Path) -> Self {
        let mut files = BTreeMap::new();
        let (stores, mut unreadable) = match names_in(parent) {
            Ok(stores) => (stores, None),
            Err(error) => (Vec::new(), Some((parent.to_owned(), error))),
        };
        for (_, store) in stores {
            if let Err(error) = add_files(&store, &mut files) {
                unreadable.get_or_insert((store, error));
            }
        }
        let bytes = files.into_values().sum();
        Self { bytes, unreadable }
    }
}

/// Adds what the files of a store take, by device and inode. What is removed meanwhile takes
/// nothing, and what is no directory is no store.
fn add_files(store: &Path, files: &mut BTreeMap<(u64, u64), u64>) -> io::Result<()> {
    let entries = match fs::read_dir(store) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(());
        }
        entries => entries?,
    };
    for entry in entries {
        match entry?.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            file => {
                let file = file?;
                files.insert((file.dev(), file.ino()), file.blocks() * BLOCK);
            }
        }
    }
    Ok(())
}

/// Of what could be read.
fn left_over(kept: Option<&[Kept]>, operations: Option<usize>) -> [Family; 2] {
    let mut count = Family::gauge(
        "stasis_leftovers",
        "Operations that were killed and not undone yet (stasis recover), and bulk memory that \
         no image needs (stasis memory prune).",
    );
    let mut bytes = Family::gauge(
        "stasis_leftover_memory_bytes",
        "What bulk memory takes that no image needs.",
    );
    if let Some(operations) = operations {
        count.add(&[("what", "operation")], operations as f64);
    }
    if let Some(kept) = kept {
        let unneeded = kept.iter().filter(|kept| why_left_over(kept).is_some());
        let own: Vec<u64> = unneeded.map(|kept| kept.own_bytes).collect();
        count.add(&[("what", "memory")], own.len() as f64);
        bytes.add(&[], own.iter().sum::<u64>() as f64);
    }
    [count, bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stores_share_counts_once() {
        let parent = tempfile::tempdir().unwrap();
        let used_in = |parent: &Path| {
            let used = Used::of(parent);
            assert!(used.unreadable.is_none(), "{used:?}");
            used.bytes
        };
        assert_eq!(used_in(&parent.path().join("none")), 0);
        let [first, second] = ["1", "2"].map(|name| parent.path().join(name));
        for store in [&first, &second] {
            fs::create_dir(store).unwrap();
        }
        fs::write(first.join("pack"), vec![1; 1 << 20]).unwrap();
        let once = used_in(parent.path());
        assert!(once >= 1 << 20, "{once}");
        fs::hard_link(first.join("pack"), second.join("pack")).unwrap();
        assert_eq!(used_in(parent.path()), once);
    }

    fn text(settings: &Settings) -> String {
        let mut parts = Parts::new();
        let mut families = families(settings, &mut parts);
        families.push(parts.family());
        families.iter().map(Family::to_string).collect()
    }

    #[test]
    fn an_empty_machine_has_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.bulk_memory.directory = directory.path().join("disk");
        settings.paths.state_dir = directory.path().join("run");
        let text = text(&settings);
        for sample in [
            "stasis_memory_used_bytes{tier=\"disk\"} 0",
            "stasis_memory_used_bytes{tier=\"ram\"} 0",
            "stasis_leftovers{what=\"operation\"} 0",
            "stasis_leftovers{what=\"memory\"} 0",
            "stasis_leftover_memory_bytes 0",
            "stasis_read_success{part=\"memory-disk\"} 1",
            "stasis_read_success{part=\"leftover-operations\"} 1",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(text.contains("stasis_memory_free_bytes{tier=\"disk\"}"));
        assert!(!text.contains("stasis_memory_free_bytes{tier=\"ram\"}"));
    }
    /// A link to itself stands for a disk that does not give it back.
    #[test]
    fn what_cannot_be_read_hides_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.bulk_memory.directory = directory.path().join("disk");
        settings.paths.state_dir = directory.path().join("run");
        let disk = &settings.bulk_memory.directory;
        fs::create_dir_all(disk.join("1")).unwrap();
        fs::write(disk.join("1/pack"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("2", disk.join("2")).unwrap();
        std::os::unix::fs::symlink("run", directory.path().join("run")).unwrap();
        let text = text(&settings);
        for sample in [
            "stasis_read_success{part=\"memory-disk\"} 0",
            "stasis_read_success{part=\"memory-ram\"} 0",
            "stasis_read_success{part=\"leftover-operations\"} 0",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(
            !text.contains("stasis_leftovers{what=\"operation\"}"),
            "{text}"
        );
        let used = "stasis_memory_used_bytes{tier=\"disk\"} ";
        let used = text.lines().find_map(|line| line.strip_prefix(used));
        let used: u64 = used.unwrap().parse().unwrap();
        assert!(used >= 1 << 20, "{text}");
    }
}
