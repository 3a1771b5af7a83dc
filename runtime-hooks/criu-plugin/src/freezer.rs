//! Holding the tasks of a tree still when nobody traces them any more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// The file that freezes a cgroup, and what is written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Freezer {
    switch: PathBuf,
    frozen: &'static str,
    thawed: &'static str,
}

impl Freezer {
    /// That of a process, unless it is in our own cgroup.
    pub(crate) fn of(pid: i32) -> io::Result<Option<Self>> {
        let own = Self::from_text(&fs::read_to_string("/proc/self/cgroup")?);
        let theirs = Self::from_text(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?);
        Ok(theirs.filter(|theirs| Some(theirs) != own.as_ref()))
    }

    /// Of the version 1 hierarchy, if there is one with a freezer.
    fn from_text(text: &str) -> Option<Self> {
        let path_of = |wanted: &str| {
            text.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let controllers = parts.next()?;
                let path = parts.next()?.trim_start_matches('/');
                controllers
                    .split(',')
                    .any(|one| one == wanted)
                    .then_some(path)
            })
        };
        if let Some(path) = path_of("freezer") {
            return Some(Self {
                switch: Path::new(ROOT)
                    .join("freezer")
                    .join(path)
                    .join("freezer.state"),
                frozen: "FROZEN",
                thawed: "THAWED",
            });
        }
        let path = path_of("")?;
        let unified = Path::new(ROOT).join("unified");
        let root = if unified.is_dir() {
            unified
        } else {
            ROOT.into()
        };
        Some(Self {
            switch: root.join(path).join("cgroup.freeze"),
            frozen: "1",
            thawed: "0",
        })
    }

    /// Whether we froze it: not if it was.
    pub(crate) fn freeze(&self) -> io::Result<bool> {
        if fs::read_to_string(&self.switch)?.trim() == self.frozen {
            return Ok(false);
        }
        fs::write(&self.switch, self.frozen)?;
        Ok(true)
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        fs::write(&self.switch, self.thawed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_freezer_of_each_version_is_found() {
        let hybrid = "12:freezer:/a/b\n3:memory,pids:/m\n0::/u\n";
        let freezer = Freezer::from_text(hybrid).unwrap();
        assert_eq!(
            freezer.switch,
            Path::new("/sys/fs/cgroup/freezer/a/b/freezer.state")
        );
        let unified = Freezer::from_text("0::/system.slice/x:y\n").unwrap();
        assert!(unified.switch.ends_with("system.slice/x:y/cgroup.freeze"));
        assert_eq!(Freezer::from_text("3:memory:/m\n"), None);
    }
}
