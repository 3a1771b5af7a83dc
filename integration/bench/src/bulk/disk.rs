//! A directory of the machine's disk in a test host, whose own files are all in memory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stasis_integration::host::installed::StasisHost;
use tempfile::TempDir;

/// Where it is in the host.
pub(crate) const DISK: &str = "/disk";

/// It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    _directory: TempDir,
}

/// What a file system is mounted from.
struct Mount {
    device: String,
    root: PathBuf,
    point: PathBuf,
    kind: String,
}

impl Disk {
    /// Mounts a new directory of the test hosts' cache, whose file system has to be on a disk, into
    /// a host. A mount cannot be carried over from here, so the host mounts the file system once
    /// more.
    pub(crate) fn lend(stasis: &StasisHost) -> Result<Self> {
        let cache = std::env::var_os("STASIS_CACHE").unwrap_or_else(|| "/var/cache/stasis".into());
        let directory = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(PathBuf::from(cache).canonicalize()?)?;
        let mount = mount_of(directory.path())?;
        let (major, minor) = mount.device.split_once(':').context("a device number")?;
        ensure!(
            major != "0",
            "{} is on {}: STASIS_CACHE has to be on a disk",
            directory.path().display(),
            mount.kind
        );
        let below = mount
            .root
            .join(directory.path().strip_prefix(&mount.point)?);
        let below = below.strip_prefix("/").unwrap_or(&below);
        let script = "set -e
            mknod /run/disk b $1 $2
            mkdir -p /run/whole $5
            mount -t $3 /run/disk /run/whole
            mount --bind /run/whole/$4 $5
            umount -l /run/whole";
        let below = below.display().to_string();
        let arguments = [major, minor, &mount.kind, &below, DISK];
        stasis
            .host
            .run(&[&["bash", "-c", script, "disk"], &arguments[..]].concat())?;
        Ok(Self {
            _directory: directory,
        })
    }
}

fn mount_of(path: &Path) -> Result<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = text.lines().filter_map(parse);
    let holding = mounts.filter(|mount| path.starts_with(&mount.point));
    // Of mounts one over the other the last is seen.
    holding
        .max_by_key(|mount| mount.point.components().count())
        .context("a path that is mounted nowhere")
}

fn parse(line: &str) -> Option<Mount> {
    let (ours, of_kind) = line.split_once(" - ")?;
    let words: Vec<&str> = ours.split(' ').collect();
    let [_, _, device, root, point, ..] = words[..] else {
        return None;
    };
    Some(Mount {
        device: device.to_owned(),
        root: root.into(),
        point: point.into(),
        kind: of_kind.split(' ').next()?.to_owned(),
    })
}
