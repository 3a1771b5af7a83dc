//! Disks of test hosts: file systems in files, on loop devices, and small ones in memory.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::Host;

/// Loop devices from 5 on stand for GPUs. A device is released with its mount.
const MOUNT: &str = "for number in 4 3 2 1 0; do
    [ -e /run/loop$number ] || mknod /run/loop$number b 7 $number
    losetup /run/loop$number $1 || continue
    mount /run/loop$number $2; mounted=$?
    losetup -d /run/loop$number
    exit $mounted
done; exit 1";

/// The bytes that an empty file system writes of its own.
const OWN: u64 = 1 << 20;

/// The program that makes a file system.
const EXT4: [&str; 2] = ["mkfs.ext4", "-Fq"];
/// Its smallest file system has 300 MiB.
const XFS: [&str; 2] = ["mkfs.xfs", "-fq"];
/// Its smallest file system has 109 MiB.
const BTRFS: [&str; 2] = ["mkfs.btrfs", "-fq"];
/// More than either of these.
const LARGE: u64 = 512 << 20;

/// A file system of which nodes have images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemKind {
    /// On a disk.
    Ext4,
    /// On a disk.
    Xfs,
    /// On a disk.
    Btrfs,
    /// Two directories as one; both are in memory.
    Overlay,
    /// In memory.
    Tmpfs,
}

impl Host {
    /// Mounts a file system with room for some images.
    pub fn mount_new(&self, kind: FileSystemKind, at: &str) -> Result<()> {
        match kind {
            FileSystemKind::Ext4 => self.mount_made(&EXT4, LARGE, at),
            FileSystemKind::Xfs => self.mount_made(&XFS, LARGE, at),
            FileSystemKind::Btrfs => self.mount_made(&BTRFS, LARGE, at),
            FileSystemKind::Tmpfs => self.mount_memory(LARGE, at),
            FileSystemKind::Overlay => {
                self.mount_memory(LARGE, at)?;
                let [lower, upper, work] =
                    ["lower", "upper", "work"].map(|name| format!("{at}/{name}"));
                self.run(&["mkdir", &lower, &upper, &work])?;
                let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
                let mount = ["mount", "-t", "overlay", "-o", &options, "overlay", at];
                self.run(&mount).map(drop)
            }
        }
    }

    /// Mounts a disk of this many bytes.
    ///
    /// # Errors
    /// There is no loop device, or no mkfs.ext4 on this machine.
    pub fn mount_disk(&self, bytes: u64, at: &str) -> Result<()> {
        self.mount_made(&EXT4, bytes, at)
    }

    fn mount_made(&self, make: &[&str], bytes: u64, at: &str) -> Result<()> {
        let disk = format!("/run/disk-{}", at.replace('/', "-"));
        let file = self.path(&disk);
        File::create(&file)?.set_len(bytes)?;
        format(&file, make)?;
        self.mount_file(&disk, at)
    }

    /// Mounts a file system of this many bytes in memory, for root alone: the default mode of a
    /// tmpfs lets all users write, which is no place for stores.
    pub fn mount_memory(&self, bytes: u64, at: &str) -> Result<()> {
        let options = format!("size={bytes},mode=700");
        self.run(&["mkdir", "-p", at])?;
        let mount = ["mount", "-t", "tmpfs", "-o", &options, "tmpfs", at];
        self.run(&mount).map(drop)
    }

    /// Mounts a disk that reports sixteen times as many bytes as it takes: no write fails, as long
    /// as memory takes it, and the excess is reported when it is written back (ENOSPC or EIO).
    pub fn mount_failing_disk(&self, bytes: u64, at: &str) -> Result<()> {
        let below = format!("/run/below-{}", at.replace('/', "-"));
        let size = format!("size={}", bytes + OWN);
        self.run(&["mkdir", "-p", &below])?;
        self.run(&["mount", "-t", "tmpfs", "-o", &size, "tmpfs", &below])?;
        let disk = format!("{below}/disk");
        let file = self.path(&disk);
        File::create(&file)?.set_len(16 * bytes)?;
        // A journal that cannot be written makes the file system read-only.
        let options = ["-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"];
        format(&file, &[&EXT4[..], &options].concat())?;
        self.mount_file(&disk, at)
    }

    /// Mounts a file that has a file system.
    pub fn mount_file(&self, file: &str, at: &str) -> Result<()> {
        self.run(&["mkdir", "-p", at])?;
        self.run(&["bash", "-c", MOUNT, "mount", file, at])
            .context("no loop device")?;
        Ok(())
    }
}

fn format(file: &Path, make: &[&str]) -> Result<()> {
    let [program, options @ ..] = make else {
        bail!("no program");
    };
    let made = Command::new(program).args(options).arg(file).output();
    let made = made.with_context(|| format!("{program} (hosts/install-requirements.sh)"))?;
    ensure!(made.status.success(), "{program}: {made:?}");
    Ok(())
}
