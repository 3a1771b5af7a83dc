//! More processes than we may open files. A test of its own, since the limit is the process's.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stasis_linux::open_files::{keep_callers_limit, raise_limit};
use stasis_linux::{ProcessRef, Snapshot};

const LIMIT: u64 = 64;
const PROCESSES: usize = 200;

/// Ended with the value.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn start() -> Self {
        let sleeper = || {
            let mut command = Command::new("sleep");
            command.arg("600").stdin(Stdio::null()).spawn().unwrap()
        };
        Self((0..PROCESSES).map(|_| sleeper()).collect())
    }

    fn pids(&self) -> BTreeSet<i32> {
        let pids = self.0.iter().map(|child| i32::try_from(child.id()));
        pids.map(Result::unwrap).collect()
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn limit_of_a_child() -> String {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn"]).stdout(Stdio::piped());
    keep_callers_limit(&mut command);
    let mut child = command.spawn().unwrap();
    let mut text = String::new();
    let mut output = child.stdout.take().unwrap();
    output.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    text.trim().to_owned()
}

#[test]
fn there_may_be_more_processes_than_files() {
    let hard = getrlimit(Resource::Nofile).maximum;
    assert!(hard.is_none_or(|hard| hard > 2 * PROCESSES as u64));
    let sleepers = Sleepers::start();
    let low = Rlimit {
        current: Some(LIMIT),
        maximum: hard,
    };
    setrlimit(Resource::Nofile, low).unwrap();

    let open_all = || -> std::io::Result<Vec<_>> {
        let opened = sleepers.pids().into_iter().map(ProcessRef::open);
        opened.collect()
    };
    assert!(open_all().is_err(), "the limit is not in force");
    let own = i32::try_from(std::process::id()).unwrap();
    let init = ProcessRef::open(own).unwrap().unwrap();
    let snapshot = Snapshot::take(&init, &sleepers.pids()).unwrap();
    assert_eq!(snapshot.members().len(), PROCESSES);

    raise_limit();
    assert_eq!(open_all().unwrap().len(), PROCESSES);
    assert_eq!(limit_of_a_child(), LIMIT.to_string());
}
