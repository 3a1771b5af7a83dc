//! Processes that have one memory (`CLONE_VM`), which CRIU does not dump.
//!
//! A child of vfork(2), and so of posix_spawn(3), is one until it execs. That is a moment, so
//! each pair is given time, and is a blocker if the two still have one memory afterwards.

use std::cmp::Ordering;
use std::io;

use stasis_config::BlockerKind;
use stasis_linux::process::kcmp::order_of_memories;
use stasis_linux::snapshot::{Member, Origin};
use stasis_linux::{ProcessRef, Snapshot};

use crate::preflight::blocker::Finding;
use crate::preflight::lasting::{MOMENT, lasting};

/// The most pairs. Each pair is two open files. A message names fewer.
const MOST_PAIRS: usize = 64;

/// A process, and another one that has the same memory.
struct Pair {
    process: ProcessRef,
    other: ProcessRef,
}

/// Finds the processes among those that CRIU dumps that have the memory of another one, and keep
/// it.
///
/// # Errors
/// An error of reading `/proc`, or of kcmp(2).
pub(crate) fn findings(snapshot: &Snapshot) -> io::Result<Vec<Finding>> {
    let lasting = lasting(pairs(snapshot)?, MOMENT, |found| {
        let mut left = Vec::new();
        for pair in found {
            if pair.has_one_memory()? {
                left.push(pair);
            }
        }
        Ok(left)
    })?;
    Ok(lasting.iter().map(Pair::finding).collect())
}

fn pairs(snapshot: &Snapshot) -> io::Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    // One process for each memory, in the kernel's order: a container may have many thousands.
    let mut firsts: Vec<&Member> = Vec::new();
    let dumped = snapshot.members().iter();
    for member in dumped.filter(|member| member.origin == Origin::Init) {
        match place(&mut firsts, member)? {
            Some(Ok(at)) => pairs.extend(Pair::of(firsts[at], member)?),
            Some(Err(at)) => firsts.insert(at, member),
            None => {}
        }
        if pairs.len() == MOST_PAIRS {
            break;
        }
    }
    Ok(pairs)
}

/// Returns the place of the process with the same memory, or the place for this one; `None` if this
/// one has ended. Removes other processes that have ended.
fn place(firsts: &mut Vec<&Member>, member: &Member) -> io::Result<Option<Result<usize, usize>>> {
    let (mut from, mut to) = (0, firsts.len());
    while from < to {
        let middle = from.midpoint(to);
        match order_of_memories(firsts[middle].pid, member.pid)? {
            Some(Ordering::Equal) => return Ok(Some(Ok(middle))),
            Some(Ordering::Less) => from = middle + 1,
            Some(Ordering::Greater) => to = middle,
            None if order_of_memories(member.pid, member.pid)?.is_none() => return Ok(None),
            None => {
                firsts.remove(middle);
                to -= 1;
            }
        }
    }
    Ok(Some(Err(from)))
}

impl Pair {
    /// `None` if one has ended: the dead have one memory, too, which is none.
    fn of(one: &Member, other: &Member) -> io::Result<Option<Self>> {
        let (Some(one), Some(other)) = (one.open()?, other.open()?) else {
            return Ok(None);
        };
        let is_child = one.parent()?.is_some_and(|up| up.pid() == other.pid());
        let (process, other) = if is_child { (one, other) } else { (other, one) };
        Ok(Some(Self { process, other }))
    }

    fn has_one_memory(&self) -> io::Result<bool> {
        let order = order_of_memories(self.process.pid(), self.other.pid())?;
        // Checked last: both pids were still theirs.
        let are_there = !self.process.is_gone() && !self.other.is_gone();
        Ok(order == Some(Ordering::Equal) && are_there)
    }

    fn finding(&self) -> Finding {
        Finding {
            kind: BlockerKind::SameMemory,
            pid: self.process.pid(),
            name: self.process.name().to_owned(),
            evidence: format!("it has the memory of {}", self.other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_their_own_memory_are_none() {
        let sleeper = || std::process::Command::new("sleep").arg("60").spawn();
        let mut children = [sleeper().unwrap(), sleeper().unwrap(), sleeper().unwrap()];
        let pids = children
            .iter()
            .map(|child| i32::try_from(child.id()).unwrap());
        let own = i32::try_from(std::process::id()).unwrap();
        let init = ProcessRef::open(own).unwrap().unwrap();
        let snapshot = Snapshot::take(&init, &pids.chain([own]).collect()).unwrap();
        let [killed, ..] = &mut children;
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert_eq!(snapshot.members().len(), 4);
        assert_eq!(findings(&snapshot).unwrap(), []);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
