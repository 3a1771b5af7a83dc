//! The processes of a container, seen in one pass.

use std::collections::BTreeSet;
use std::io;

use crate::escape::escaped;
use crate::process::ProcessRef;
use crate::procfs::{Stat, TaskState, is_dying, threads};
use crate::tree::descendants;

/// One view of the processes of a container: their identities, which of them CRIU dumps, and which
/// may use CUDA. Only the latter are held by pidfd: a container may have more processes than we may
/// open files.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    members: Vec<Member>,
    candidates: Vec<ProcessRef>,
    headless: Vec<Headless>,
}

/// A process whose first thread has ended while others go on (pthread_exit(3) in `main`). Its
/// memory and its files cannot be read under its pid, its pidfd says that it has ended, and CRIU
/// takes it for a zombie, and ends it with the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headless {
    /// The pid as we see it.
    pub pid: i32,
    /// The command name, as it may be shown.
    pub name: String,
}

impl Headless {
    /// Returns `None` if the process does not exist, or none of its threads goes on.
    fn look(pid: i32) -> io::Result<Option<Self>> {
        let Some(stat) = Stat::of(pid)?.filter(|stat| stat.state == TaskState::Ended) else {
            return Ok(None);
        };
        for thread in threads(pid)? {
            if !is_dying(pid, thread)? {
                let name = escaped(&stat.name);
                return Ok(Some(Self { pid, name }));
            }
        }
        Ok(None)
    }
}

/// A process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The pid as we see it.
    pub pid: i32,
    /// The pid in the pid namespace of the container's init, if it has one there.
    pub pid_inside: Option<i32>,
    /// When it was started, in clock ticks since boot.
    pub start_time: u64,
    /// The command name, for messages.
    pub name: String,
    /// The way by which it came into the container.
    pub origin: Origin,
}

/// The way by which a process came into a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The container's init, or a descendant of it: CRIU dumps it.
    Init,
    /// Put into the container's cgroup by `exec`: in no image, and ends with the container.
    Exec,
}

impl Member {
    /// Takes hold of the process; `None` if it has ended.
    pub fn open(&self) -> io::Result<Option<ProcessRef>> {
        let process = ProcessRef::open(self.pid)?;
        Ok(process.filter(|process| self.is(process)))
    }

    /// Returns whether the member is this process.
    pub fn is(&self, process: &ProcessRef) -> bool {
        (self.pid, self.start_time) == (process.pid(), process.start_time())
    }
}

impl Snapshot {
    /// Looks at the processes of the container of `init`, which are `pids`. Leaves out zombies, and
    /// processes that end meanwhile.
    pub fn take(init: &ProcessRef, pids: &BTreeSet<i32>) -> io::Result<Self> {
        let tree = descendants(init.pid(), pids.iter().copied())?;
        let mut snapshot = Self::default();
        for pid in pids {
            let Some(process) = ProcessRef::open(*pid)? else {
                snapshot.headless.extend(Headless::look(*pid)?);
                continue;
            };
            let origin = if tree.contains(pid) {
                Origin::Init
            } else {
                Origin::Exec
            };
            snapshot.members.push(Member {
                pid: *pid,
                pid_inside: process.pid_at_depth(init.namespace_depth()),
                start_time: process.start_time(),
                name: process.name().to_owned(),
                origin,
            });
            // A process that cannot be read is queried like the others.
            if process.may_use_cuda().unwrap_or(true) {
                snapshot.candidates.push(process);
            }
        }
        Ok(snapshot)
    }

    /// All processes, in order of pid.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The processes that may use CUDA, in order of pid. Only these are queried.
    pub fn candidates(&self) -> &[ProcessRef] {
        &self.candidates
    }

    /// The processes whose first thread has ended, in order of pid. They are no members.
    pub fn headless(&self) -> &[Headless] {
        &self.headless
    }

    /// The candidates, owned.
    #[must_use]
    pub fn into_candidates(self) -> Vec<ProcessRef> {
        self.candidates
    }

    /// The processes that `exec` started.
    pub fn exec_sessions(&self) -> impl Iterator<Item = &Member> {
        let mut members = self.members.iter();
        std::iter::from_fn(move || members.find(|member| member.origin == Origin::Exec))
    }

    /// Returns how a process came into the container; `None` if it was not in it.
    pub fn origin_of(&self, process: &ProcessRef) -> Option<Origin> {
        let at = self
            .members
            .binary_search_by_key(&process.pid(), |member| member.pid);
        let member = self.members.get(at.ok()?)?;
        member.is(process).then_some(member.origin)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::process::tests::{copy_cat, start};

    fn pid_of(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    #[test]
    fn who_descends_from_init_is_told_from_who_came_by_exec() {
        let sleeper = || Command::new("sleep").arg("60").spawn().unwrap();
        let (mut init, mut session) = (sleeper(), sleeper());
        let process = ProcessRef::open(pid_of(&init)).unwrap().unwrap();
        let other = ProcessRef::open(pid_of(&session)).unwrap().unwrap();
        let pids = BTreeSet::from([pid_of(&init), pid_of(&session), i32::MAX]);
        let snapshot = Snapshot::take(&process, &pids).unwrap();
        assert_eq!(snapshot.members().len(), 2);
        assert_eq!(snapshot.origin_of(&process), Some(Origin::Init));
        assert_eq!(snapshot.origin_of(&other), Some(Origin::Exec));
        let sessions: Vec<i32> = snapshot.exec_sessions().map(|one| one.pid).collect();
        assert_eq!(sessions, [pid_of(&session)]);
        assert!(snapshot.candidates().is_empty());
        let member = &snapshot.members()[0];
        assert_eq!(member.pid_inside, Some(member.pid));
        assert!(member.open().unwrap().is_some_and(|open| member.is(&open)));
        for child in [&mut init, &mut session] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(member.open().unwrap().is_none());
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_told_from_a_zombie() {
        let script = "import threading, ctypes, time\n\
                      threading.Thread(target=time.sleep, args=(60,)).start()\n\
                      ctypes.CDLL(None).pthread_exit(None)";
        let mut headless = Command::new("python3")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let mut zombie = Command::new("true").spawn().unwrap();
        let pids = [&headless, &zombie].map(pid_of);
        let has_ended = |pid| Stat::of(pid).unwrap().unwrap().state == TaskState::Ended;
        while !pids.into_iter().all(has_ended) {
            std::thread::yield_now();
        }
        let own = i32::try_from(std::process::id()).unwrap();
        let own = ProcessRef::open(own).unwrap().unwrap();
        let snapshot = Snapshot::take(&own, &pids.into()).unwrap();
        let found: Vec<_> = snapshot.headless().iter().map(|it| it.pid).collect();
        assert_eq!((found, snapshot.members()), (vec![pids[0]], &[][..]));
        headless.kill().unwrap();
        headless.wait().unwrap();
        zombie.wait().unwrap();
    }

    /// Its threads end one after another, the first of them not last.
    #[test]
    fn a_process_that_is_killed_is_none_whose_first_thread_has_ended() {
        let script = "import threading, time\n\
                      for _ in range(64): threading.Thread(target=time.sleep, args=(60,)).start()\n\
                      print(flush=True)";
        let own = i32::try_from(std::process::id()).unwrap();
        let own = ProcessRef::open(own).unwrap().unwrap();
        for _ in 0..20 {
            let mut python = Command::new("python3");
            python.args(["-c", script]).stdout(Stdio::piped());
            let mut killed = python.spawn().unwrap();
            let pid = pid_of(&killed);
            killed
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut [0])
                .unwrap();
            killed.kill().unwrap();
            while threads(pid).unwrap().len() > 1 {
                let snapshot = Snapshot::take(&own, &[pid].into()).unwrap();
                assert_eq!(snapshot.headless(), []);
            }
            killed.wait().unwrap();
        }
    }

    /// The program itself is the mapped file whose name is that of the driver's library.
    #[test]
    fn who_has_libcuda_loaded_may_use_cuda_and_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("libcuda.so.1");
        copy_cat(&program);
        let mut child = start(Command::new(program));
        let process = ProcessRef::open(pid_of(&child)).unwrap().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let pids = BTreeSet::from([own, process.pid()]);
        let snapshot = Snapshot::take(&process, &pids).unwrap();
        let candidates = snapshot.candidates().iter().map(ProcessRef::pid);
        assert_eq!(candidates.collect::<Vec<_>>(), [process.pid()]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
