//! Disks of tests, on real file systems.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use stasis_linux::file_system::loop_device::{Access, LoopDevice};

use crate::left_out::say_left_out;

/// A file system: its name, its size, how it is made and mounted.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) bytes: u64,
    pub(super) make: &'static [&'static str],
    /// A copy has the name of its original.
    pub(super) options: &'static str,
}

pub(super) const EXT4: Kind = Kind {
    name: "ext4",
    bytes: 16 << 20,
    make: &["mkfs.ext4", "-Fq"],
    options: "",
};
pub(super) const XFS: Kind = Kind {
    name: "xfs",
    bytes: 300 << 20,
    make: &["mkfs.xfs", "-fq"],
    options: "nouuid",
};
pub(super) const BTRFS: Kind = Kind {
    name: "btrfs",
    bytes: 128 << 20,
    make: &["mkfs.btrfs", "-fq"],
    options: "",
};

/// A disk that is mounted, for this thread alone.
pub(super) struct Disk {
    file: PathBuf,
    pub(super) at: PathBuf,
    device: LoopDevice,
}

impl Disk {
    pub(super) fn mount(kind: &Kind, file: PathBuf, at: &Path) -> Self {
        if kind.name == "btrfs" {
            // The kernel remembers a newer state of this file system.
            run(
                "btrfs",
                &["device".as_ref(), "scan".as_ref(), "-u".as_ref()],
            );
        }
        let device = LoopDevice::of(&file, Access::ReadWrite).unwrap();
        let flags = MsFlags::empty();
        let mounted = mount(
            Some(device.path()),
            at,
            Some(kind.name),
            flags,
            Some(kind.options),
        );
        mounted.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        Self {
            file,
            at: at.to_owned(),
            device,
        }
    }

    /// Copies what it has: no more than that is there after its power has failed.
    pub(super) fn copy(&self, name: &str) -> PathBuf {
        let copy = self.file.with_extension(name);
        let (from, to) = (self.file.as_os_str(), copy.as_os_str());
        run("cp", &["--sparse=always".as_ref(), from, to]);
        copy
    }

    /// Returns how often something was written to it.
    pub(super) fn writes(&self) -> u64 {
        let name = self.device.path().file_name().unwrap();
        let stat = Path::new("/sys/block").join(name).join("stat");
        let stat = fs::read_to_string(stat).unwrap();
        stat.split_whitespace().nth(4).unwrap().parse().unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A process that another test has just started may have a file of it open for a moment.
        let tries = 0..10_000;
        let is_busy = |_: &i32| umount(&self.at) == Err(Errno::EBUSY);
        let busy = tries
            .take_while(is_busy)
            .inspect(|_| sleep(Duration::from_millis(1)));
        assert!(busy.count() < 10_000, "it stays busy");
    }
}

fn run(program: &str, arguments: &[&OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

pub(super) fn new_disk(kind: &Kind, below: &Path) -> PathBuf {
    let file = below.join("disk");
    File::create(&file).unwrap().set_len(kind.bytes).unwrap();
    let options = kind.make[1..].iter().map(AsRef::as_ref);
    let arguments: Vec<&OsStr> = options.chain([file.as_os_str()]).collect();
    run(kind.make[0], &arguments);
    file
}

/// Whether it can be mounted, in a mount namespace of this thread's own.
pub(super) fn can_mount(kind: &Kind) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let lacks = match () {
        () if !rustix::process::geteuid().is_root() => "mounting needs root",
        () if !Path::new("/dev/loop-control").exists() => "there are no loop devices",
        () if !known.split_whitespace().any(|name| name == kind.name) => "the kernel lacks it",
        () => {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            let none: Option<&str> = None;
            mount(none, "/", none, private, none).unwrap();
            return true;
        }
    };
    say_left_out(&format!("power failures on {}", kind.name), lacks).unwrap();
    false
}
