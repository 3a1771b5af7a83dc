//! Disks of test hosts: ext4 file systems in files, on loop devices, and small ones in memory.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Host;

/// Those from 5 on stand for GPUs. One is given up with its mount.
const MOUNT: &str = "for number in 4 3 2 1 0; do
    [ -e /run/loop$number ] || mknod /run/loop$number b 7 $number
    losetup /run/loop$number $1 || continue
    mount /run/loop$number $2; mounted=$?
    losetup -d /run/loop$number
    exit $mounted
done; exit 1";

/// What an empty file system writes of itself.
const OWN: u64 = 1 << 20;

impl Host {
    /// Mounts a disk of so many bytes.
    ///
    /// # Errors
    /// There is no loop device, or no mkfs.ext4 on this machine.
    pub fn mount_disk(&self, bytes: u64, at: &str) -> Result<()> {
        let disk = format!("/run/disk-{}", at.replace('/', "-"));
        let file = self.path(&disk);
        File::create(&file)?.set_len(bytes)?;
        format(&file, &[])?;
        self.mount_file(&disk, at)
    }

    /// Mounts a file system of so many bytes in memory, for root alone: by itself a tmpfs is
    /// everybody's to write, and no place for stores.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn mount_memory(&self, bytes: u64, at: &str) -> Result<()> {
        let options = format!("size={bytes},mode=700");
        self.run(&["mkdir", "-p", at])?;
        let mount = ["mount", "-t", "tmpfs", "-o", &options, "tmpfs", at];
        self.run(&mount).map(drop)
    }

    /// Mounts a disk that says it has sixteen times as many bytes as it takes: no write fails, as
    /// long as memory takes it, and what is too much is told when it is written back (ENOSPC or
    /// EIO).
    ///
    /// # Errors
    /// As [`Host::mount_disk`].
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
        format(&file, &options)?;
        self.mount_file(&disk, at)
    }

    fn mount_file(&self, file: &str, at: &str) -> Result<()> {
        self.run(&["mkdir", "-p", at])?;
        self.run(&["bash", "-c", MOUNT, "mount", file, at])
            .context("no loop device")?;
        Ok(())
    }
}

fn format(file: &Path, options: &[&str]) -> Result<()> {
    let mut make = Command::new("mkfs.ext4");
    let made = make.arg("-Fq").args(options).arg(file).status()?;
    ensure!(made.success(), "mkfs.ext4: {made}");
    Ok(())
}
