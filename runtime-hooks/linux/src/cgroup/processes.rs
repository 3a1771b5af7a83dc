//! The processes of a cgroup and of the cgroups below it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::{Cgroup, children};
use crate::procfs::Status;

impl Cgroup {
    /// The pids of all processes of the cgroup and of the cgroups below it.
    ///
    /// # Errors
    /// An I/O error with its path. A sub-cgroup that vanishes meanwhile is no error.
    pub fn pids(&self) -> io::Result<BTreeSet<i32>> {
        pids(&self.directory)
    }
}

/// The pids of all processes of the cgroup of a directory and of the cgroups below it.
pub fn pids(directory: &Path) -> io::Result<BTreeSet<i32>> {
    let mut pids = BTreeSet::new();
    match collect(directory, &mut pids) {
        Ok(()) => Ok(pids),
        Err(Unread { path, source }) => {
            let text = format!("{}: {source}", path.display());
            Err(io::Error::new(source.kind(), text))
        }
    }
}

/// A file that could not be read, and the error.
struct Unread {
    path: PathBuf,
    source: io::Error,
}

/// Sub-cgroups of a container come and go: the kernel answers ENOENT for a removed one when its
/// file is opened, and ENODEV when it is removed between opening and reading (fs/kernfs/file.c).
fn collect(directory: &Path, pids: &mut BTreeSet<i32>) -> Result<(), Unread> {
    pids.extend(match read_pids(directory.join("cgroup.procs")) {
        // A threaded cgroup has threads, whose processes may have others elsewhere, and does not
        // list processes (Documentation/admin-guide/cgroup-v2.rst).
        Err(unread) if is(&unread.source, Errno::OPNOTSUPP) => {
            processes_of(&read_pids(directory.join("cgroup.threads"))?)
        }
        other => other?,
    });
    let unread = |source| Unread {
        path: directory.to_owned(),
        source,
    };
    for child in children(directory).map_err(unread)? {
        match collect(&child, pids) {
            Err(unread) if is_removed(&unread.source) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Leaves out pid 0, a process outside our pid namespace, on which we could not act.
fn read_pids(path: PathBuf) -> Result<BTreeSet<i32>, Unread> {
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(Unread { path, source }),
    };
    let pids = text.lines().filter_map(|line| line.parse().ok());
    Ok(pids.filter(|pid| *pid > 0).collect())
}

/// A thread that ends meanwhile belongs to no process.
fn processes_of(threads: &BTreeSet<i32>) -> BTreeSet<i32> {
    let statuses = threads.iter().map(|thread| Status::of(*thread));
    let processes = statuses.filter_map(|status| status.ok()??.process());
    processes.collect()
}

/// Whether a file is missing because its cgroup is. ENODEV is the answer for a cgroup that was
/// removed after its file was opened.
pub fn is_removed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || is(error, Errno::NODEV)
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cgroup::Hierarchies;

    /// A directory with these files, by relative path.
    pub(crate) fn directory_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn sub_cgroups_belong_to_the_container() {
        let directory = directory_with(&[
            ("cgroup.procs", "10\n"),
            ("a/cgroup.procs", "11\n12\n"),
            ("a/b/cgroup.procs", "13\n0\n"),
        ]);
        let cgroup = Cgroup::v2(directory.path().into());
        assert_eq!(cgroup.pids().unwrap(), BTreeSet::from([10, 11, 12, 13]));
    }

    #[test]
    fn a_missing_cgroup_is_an_error_with_its_path() {
        let error = Cgroup::v2("/nonexistent/cg".into()).pids().unwrap_err();
        assert!(error.to_string().contains("/nonexistent/cg/cgroup.procs"));
    }

    /// A cgroup of its own on this machine's version 2 hierarchy, if it has one that we may use.
    struct Real(PathBuf);

    impl Real {
        fn make(name: &str) -> Option<Self> {
            let name = format!("stasis-test-{name}-{}", std::process::id());
            let hierarchies = Hierarchies::read().unwrap();
            let directory = hierarchies.v2(&Path::new("/").join(name))?;
            fs::create_dir(&directory).ok()?;
            Some(Self(directory))
        }
    }

    impl Drop for Real {
        fn drop(&mut self) {
            let _ = fs::remove_dir(self.0.join("inner"));
            let _ = fs::remove_dir(&self.0);
        }
    }

    #[test]
    fn sub_cgroups_may_be_removed_while_they_are_read() {
        let Some(real) = Real::make("removed") else {
            return;
        };
        let inner = real.0.join("inner");
        let cgroup = Cgroup::v2(real.0.clone());
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = fs::create_dir(&inner);
                    let _ = fs::remove_dir(&inner);
                }
            });
            let read: io::Result<Vec<_>> = (0..20_000).map(|_| cgroup.pids()).collect();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(read.unwrap().iter().all(BTreeSet::is_empty));
        });
    }

    #[test]
    fn the_processes_of_a_threaded_cgroup_are_found() {
        let Some(real) = Real::make("threaded") else {
            return;
        };
        let inner = real.0.join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("cgroup.type"), "threaded").unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        fs::write(real.0.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(inner.join("cgroup.threads"), pid.to_string()).unwrap();
        for directory in [&real.0, &inner] {
            let pids = Cgroup::v2(directory.clone()).pids();
            assert_eq!(pids.unwrap(), BTreeSet::from([pid]), "{directory:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
