//! Which processes descend from another one.
//!
//! CRIU dumps a container's init and all that descend from it (criu/seize.c `collect_children`). A
//! process that `runc exec` starts is in the container's cgroup and descends from a process
//! outside; when its starter has ended, the kernel gives it to a process outside of the container
//! as well. A child of such a process whose parent ends is given to init, and belongs to the tree
//! from then on (kernel/exit.c `find_new_reaper`).

use std::collections::{BTreeSet, HashMap};
use std::io;

use crate::procfs::Stat;

/// How often a process may lose its parent while its ancestors are read.
const MAX_ADOPTIONS: usize = 64;
/// Longer than any line of ancestors: pids do not go beyond this (PID_MAX_LIMIT).
const MAX_DEPTH: usize = 1 << 22;

/// The `pids` that descend from `root`, and `root` itself if it is one of them. Processes
/// that end meanwhile are left out.
///
/// Parents are read one after the other, while processes fork and end: a process whose parent ends
/// before that one's own parent was read has a new parent, and is asked again.
///
/// # Errors
/// An error of reading `/proc`; a process that changes its parent without end.
pub fn descendants(root: i32, pids: impl IntoIterator<Item = i32>) -> io::Result<BTreeSet<i32>> {
    let mut ancestry = Ancestry {
        root,
        known: HashMap::new(),
    };
    let mut found = BTreeSet::new();
    for pid in pids {
        if ancestry.descends(pid, &|pid| Ok(Stat::of(pid)?.map(|stat| stat.parent)))? {
            found.insert(pid);
        }
    }
    Ok(found)
}

/// The processes that are known to descend from `root`, or not to.
struct Ancestry {
    root: i32,
    known: HashMap<i32, bool>,
}

impl Ancestry {
    /// Climbs from a process to `root`, or to one that has no parent here, or whose descent is
    /// known.
    fn descends(
        &mut self,
        pid: i32,
        parent_of: &dyn Fn(i32) -> io::Result<Option<i32>>,
    ) -> io::Result<bool> {
        let mut climbed = Vec::new();
        let mut adoptions = 0;
        let mut at = pid;
        let descends = loop {
            if at == self.root {
                break true;
            }
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            match parent_of(at)? {
                // The parent of our pid namespace's init, and of processes put into the namespace.
                Some(0) => break false,
                Some(parent) => {
                    climbed.push(at);
                    at = parent;
                }
                None => match climbed.pop() {
                    // The process has ended meanwhile, and its child was given to another process.
                    Some(child) => {
                        at = child;
                        adoptions += 1;
                    }
                    None => return Ok(false),
                },
            }
            if adoptions > MAX_ADOPTIONS || climbed.len() > MAX_DEPTH {
                let text = format!("the ancestors of process {pid} change without end");
                return Err(io::Error::other(text));
            }
        };
        self.known
            .extend(climbed.into_iter().map(|pid| (pid, descends)));
        Ok(descends)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn children_of_children_descend_and_others_do_not() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'sleep 60 & echo $!; wait' & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let other = Command::new("sleep").arg("60").spawn();
        let mut other = other.unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let inner: Vec<i32> = lines
            .take(2)
            .map(|line| line.unwrap().parse().unwrap())
            .collect();
        let root = i32::try_from(shell.id()).unwrap();
        let stranger = i32::try_from(other.id()).unwrap();
        let asked = [inner[0], inner[1], root, stranger, own_pid(), 1, i32::MAX];
        let expected = BTreeSet::from([inner[0], inner[1], root]);
        assert_eq!(descendants(root, asked).unwrap(), expected);
        for pid in &inner {
            crate::ProcessRef::open(*pid).unwrap().map(|one| one.kill());
        }
        shell.wait().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
    }

    /// 12 is a child of 11, which ends before its parent is read, and 12 is given to 10.
    #[test]
    fn who_is_adopted_while_its_ancestors_are_read_is_asked_again() {
        let answers = RefCell::new(vec![(12, Some(11)), (11, None), (12, Some(10))]);
        let parent_of = |pid| {
            let (asked, answer) = answers.borrow_mut().remove(0);
            assert_eq!(pid, asked);
            Ok(answer)
        };
        let mut ancestry = Ancestry {
            root: 10,
            known: HashMap::new(),
        };
        assert!(ancestry.descends(12, &parent_of).unwrap());
        assert!(
            ancestry.descends(12, &parent_of).unwrap(),
            "it is known now"
        );
    }

    #[test]
    fn adoption_without_end_is_an_error() {
        let parent_of = |pid| Ok(if pid == 12 { Some(11) } else { None });
        let mut ancestry = Ancestry {
            root: 10,
            known: HashMap::new(),
        };
        assert!(ancestry.descends(12, &parent_of).is_err());
    }
}
