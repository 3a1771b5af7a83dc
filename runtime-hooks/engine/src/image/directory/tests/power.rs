//! Power failures before each change of a checkpoint, on real file systems: the state of the disk
//! is copied, and mounted as after a boot.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use stasis_linux::file_system::loop_device::{Access, LoopDevice};

use super::super::*;
use super::begin;
use super::change::{Call, asking, change};
use super::scene::{Before, next_finds, write_image};
use crate::left_out::say_left_out;

const NEXT: &str = "next";

/// A file system: its name, its size, how it is made and mounted.
struct Kind {
    name: &'static str,
    bytes: u64,
    make: &'static [&'static str],
    /// A copy has the name of its original.
    options: &'static str,
}

const EXT4: Kind = Kind {
    name: "ext4",
    bytes: 16 << 20,
    make: &["mkfs.ext4", "-Fq"],
    options: "",
};
const XFS: Kind = Kind {
    name: "xfs",
    bytes: 300 << 20,
    make: &["mkfs.xfs", "-fq"],
    options: "nouuid",
};
const BTRFS: Kind = Kind {
    name: "btrfs",
    bytes: 128 << 20,
    make: &["mkfs.btrfs", "-fq"],
    options: "",
};

/// Writes by others before power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Nothing,
    /// A process brings a file of its own to disk: names get there, and the contents of other files
    /// may not.
    Sync,
}

/// A disk that is mounted, for this thread alone.
struct Disk {
    file: PathBuf,
    at: PathBuf,
    device: LoopDevice,
}

impl Disk {
    fn mount(kind: &Kind, file: PathBuf, at: &Path) -> Self {
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

    /// Returns how often something was written to it.
    fn writes(&self) -> u64 {
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

/// A copy of what a disk has when its power fails.
struct Cut {
    copy: PathBuf,
    /// Whether the checkpoint had been reported as done by then.
    is_done: bool,
    said: String,
}

/// Copies a disk whenever it has changed.
struct Cutter {
    disk: Disk,
    others: Others,
    calls: usize,
    writes: u64,
    cuts: Vec<Cut>,
}

impl Cutter {
    fn cut(&mut self, is_done: bool) {
        self.calls += 1;
        if self.others == Others::Sync {
            let mut file = File::create(self.disk.at.join("others")).unwrap();
            file.write_all(b"not ours").unwrap();
            file.sync_all().unwrap();
        }
        let writes = self.disk.writes();
        if writes == self.writes && !is_done {
            return;
        }
        self.writes = writes;
        let copy = self.disk.file.with_extension(self.calls.to_string());
        let (from, to) = (self.disk.file.as_os_str(), copy.as_os_str());
        run("cp", &["--sparse=always".as_ref(), from, to]);
        let said = format!("{:?} before call {}", self.others, self.calls);
        self.cuts.push(Cut {
            copy,
            is_done,
            said,
        });
    }
}

/// Makes a checkpoint, and cuts the power before each of its changes and once it is done.
fn cuts(disk: Disk, before: Before, others: Others) -> Vec<Cut> {
    let directory = disk.at.join("image");
    fs::create_dir(&directory).unwrap();
    before.make(&directory);
    FileSystem::of(&directory).unwrap().sync().unwrap();
    let cutter = Rc::new(RefCell::new(Cutter {
        disk,
        others,
        calls: 0,
        writes: 0,
        cuts: Vec::new(),
    }));
    let before_each = cutter.clone();
    let hook = move || {
        before_each.borrow_mut().cut(false);
        Call::IsMade
    };
    let committed = asking(hook, || {
        let image = begin(&directory).unwrap();
        write_image(image.path(), NEXT).unwrap();
        let sync = |system: &FileSystem| change(|| system.sync());
        image.commit(None, sync).unwrap()
    });
    assert!(committed.0.is_none(), "{committed:?}");
    cutter.borrow_mut().cut(true);
    Rc::into_inner(cutter).unwrap().into_inner().cuts
}

/// Returns what the next reader finds after a boot: another boot's page cache vouches for nothing.
fn found_after_boot(kind: &Kind, cut: Cut, at: &Path) -> Option<String> {
    let disk = Disk::mount(kind, cut.copy, at);
    let directory = disk.at.join("image");
    for place in places(&directory) {
        let boot = place.join(BOOT);
        if fs::read(&boot).is_ok_and(|boot| !boot.is_empty()) {
            fs::write(&boot, "another").unwrap();
        }
    }
    next_finds(&directory)
}

/// Verifies all cuts, in a directory without an image, with one, and with a committed one.
fn on(kind: &Kind) {
    if !can_mount(kind) {
        return;
    }
    let mut number = 0;
    for before in [Before::Nothing, Before::Earlier, Before::Complete] {
        let mut seen = BTreeSet::new();
        for others in [Others::Nothing, Others::Sync] {
            let below = tempfile::tempdir_in("/dev/shm").unwrap();
            let at = below.path().join("mounted");
            fs::create_dir(&at).unwrap();
            let disk = Disk::mount(kind, new_disk(kind, below.path()), &at);
            for cut in cuts(disk, before, others) {
                let (is_done, said) = (cut.is_done, cut.said.clone());
                println!("{} {before:?} {said}", kind.name);
                let found = found_after_boot(kind, cut, &at);
                let is_next = found.as_deref() == Some(NEXT);
                assert!(
                    is_next || !is_done && found.as_deref() == before.image(),
                    "{found:?}"
                );
                seen.insert(is_next);
                number += 1;
            }
        }
        assert_eq!(
            seen.len(),
            2,
            "power never failed on one side of the commit"
        );
    }
    println!("{number} cuts");
}

fn new_disk(kind: &Kind, below: &Path) -> PathBuf {
    let file = below.join("disk");
    File::create(&file).unwrap().set_len(kind.bytes).unwrap();
    let options = kind.make[1..].iter().map(AsRef::as_ref);
    let arguments: Vec<&OsStr> = options.chain([file.as_os_str()]).collect();
    run(kind.make[0], &arguments);
    file
}

/// Whether it can be mounted, in a mount namespace of this thread's own.
fn can_mount(kind: &Kind) -> bool {
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

#[test]
fn power_fails_on_ext4() {
    on(&EXT4);
}

#[test]
fn power_fails_on_xfs() {
    on(&XFS);
}

#[test]
fn power_fails_on_btrfs() {
    on(&BTRFS);
}
