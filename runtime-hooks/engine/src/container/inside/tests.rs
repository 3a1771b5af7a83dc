use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, inotify, makedev, mknodat};
use tempfile::TempDir;

use super::*;

/// A directory that stands for a container's root, and is watched for files that are opened.
struct Root {
    directory: TempDir,
    watch: OwnedFd,
}

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).unwrap();
        inotify::add_watch(&watch, directory.path(), inotify::WatchFlags::OPEN).unwrap();
        Self { directory, watch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn node(&self, name: &str, kind: FileType, device: u64) {
        mknodat(CWD, self.path(name), kind, Mode::RWXU, device).unwrap();
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(self.directory.path(), flags, Mode::empty()).unwrap();
        read_file(root, Path::new(path), 10)
    }

    /// The names that were opened since the last call.
    fn opened(&self) -> Vec<String> {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.watch, &mut room);
        let mut names = Vec::new();
        while let Ok(event) = events.next() {
            let name = event
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            names.extend(name);
        }
        names
    }
}

#[test]
fn a_plain_file_is_read_up_to_the_limit() {
    let root = Root::new();
    fs::write(root.path("plain"), "0123456789abc").unwrap();
    symlink("/plain", root.path("link")).unwrap();
    for path in ["plain", "/plain", "/../plain", "/link"] {
        assert_eq!(root.read(path).unwrap(), b"0123456789", "{path}");
        assert_eq!(root.opened(), ["plain"], "{path}");
    }
}

#[test]
fn what_is_no_plain_file_is_not_even_opened() {
    let root = Root::new();
    root.node("device", FileType::CharacterDevice, makedev(1, 3));
    root.node("disk", FileType::BlockDevice, makedev(7, 77));
    root.node("fifo", FileType::Fifo, 0);
    fs::create_dir(root.path("directory")).unwrap();
    symlink("device", root.path("link")).unwrap();
    for path in ["device", "disk", "fifo", "directory", "link"] {
        let error = root.read(path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
    }
    assert_eq!(root.opened(), [""; 0]);
}

#[test]
fn nothing_leads_out_of_the_root() {
    let (root, outside) = (Root::new(), tempfile::tempdir().unwrap());
    let secret = outside.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, root.path("link")).unwrap();
    assert!(root.read("link").is_err());
    assert!(root.read("../../../../etc/passwd").is_err());
    let own = ProcessRef::open(i32::try_from(std::process::id()).unwrap());
    let machine = root_of(&own.unwrap().unwrap()).unwrap();
    // /proc is another mount, and a magic link leads anywhere.
    let magic = read_file(&machine, Path::new("/proc/self/root/etc/passwd"), 10);
    assert!(magic.is_err());
    let mount = read_file(&machine, Path::new("/proc/version"), 10).unwrap_err();
    assert_eq!(mount.kind(), io::ErrorKind::CrossesDevices);
}

#[test]
fn the_root_of_a_process_that_has_ended_is_nobodys() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let process = ProcessRef::open(i32::try_from(child.id()).unwrap());
    let process = process.unwrap().unwrap();
    root_of(&process).unwrap();
    child.kill().unwrap();
    // Not reaped, so the pid is still there.
    while !process.is_gone() {}
    assert!(root_of(&process).is_err());
    child.wait().unwrap();
}

#[test]
fn a_link_leads_to_a_directory_of_the_container() {
    let root = Root::new();
    fs::create_dir_all(root.path("own/dev")).unwrap();
    fs::write(root.path("own/dev/nvidia7"), "").unwrap();
    // On the host this is a directory of the host's.
    symlink("/own/dev", root.path("dev")).unwrap();
    symlink("/proc/self/fd", root.path("of-the-host")).unwrap();
    let names = |path: &str| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(root.directory.path(), flags, Mode::empty()).unwrap();
        names_in(directory, Path::new(path))
    };
    assert!(names("dev").unwrap().iter().any(|name| name == "nvidia7"));
    assert!(names("of-the-host").is_err());
    assert!(names("missing").is_err());
}
