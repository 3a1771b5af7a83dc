//! Our process is killed at each step, and another process puts back what it has left. Or the
//! program is killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_linux::ProcessRef;

use super::program::{Variant, Workload};
use super::round::{PIECES, out_and_in, out_into, returned, store};
use super::state::{State, memory};
use crate::slots::inspect;
use crate::{PutBack, Record, prepare, put_back};

/// Environment variable with the pid of the workload, for the process that arms.
const WORKLOAD: &str = "STASIS_TEST_WORKLOAD";

/// Not a test: the process that is killed. It writes its record, and a line for each step, which
/// it makes when it reads one.
#[test]
#[ignore = "started by others"]
fn the_process_that_arms() {
    let Ok(pid) = std::env::var(WORKLOAD) else {
        return;
    };
    let process = ProcessRef::open(pid.parse().unwrap()).unwrap().unwrap();
    let prepared = prepare(&process, inspect(&process).unwrap(), out_into(&store()), 3).unwrap();
    let mut steps = std::io::stdin().lines();
    println!(
        "record {}",
        serde_json::to_string(prepared.record()).unwrap()
    );
    steps.next();
    let _armed = prepared.arm().unwrap();
    println!("armed");
    steps.next();
}

/// The step at which the process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Prepared,
    Armed,
    HalfCopied,
    Copied,
}

struct Arming {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    record: Record,
}

impl Arming {
    fn begin(workload: &Workload) -> Self {
        let name = "tests::killed::the_process_that_arms";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", name])
            .env(WORKLOAD, workload.pid().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        let record = lines.find_map(|line| {
            let text = line.split("record ").nth(1)?;
            Some(serde_json::from_str(text).unwrap())
        });
        Self {
            child,
            lines: Box::new(lines),
            record: record.unwrap(),
        }
    }

    fn arm(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap()).unwrap();
        assert!(self.lines.any(|line| line == "armed"));
    }

    fn kill(mut self) -> Record {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.record
    }
}

fn killed_at(step: Step) {
    let mut workload = Workload::start(PIECES, Variant::BindNow);
    let process = workload.process();
    let slots = inspect(&process).unwrap();
    let before = State::of(&workload, &slots);
    let mut arming = Arming::begin(&workload);
    if step >= Step::Armed {
        arming.arm();
    }
    if step >= Step::HalfCopied {
        assert_eq!(workload.tell("half-out"), 0);
    }
    if step >= Step::Copied {
        assert_eq!(workload.tell("rest-out"), 0);
    }
    let record = arming.kill();
    if step == Step::HalfCopied {
        // The code goes on alone.
        assert_eq!(workload.tell("rest-out"), 0);
    }
    let found = returned(put_back(&process, &record).unwrap());
    assert_eq!(
        found.contents.is_some(),
        step >= Step::HalfCopied,
        "{found:?}"
    );
    for _ in 0..2 {
        let again = put_back(&process, &record).unwrap();
        assert!(matches!(again, PutBack::NothingThere), "{again:?}");
    }
    if step >= Step::HalfCopied {
        assert_eq!(workload.tell("in"), 0);
    }
    assert_eq!(workload.tell("wrong"), 0);
    assert_eq!(State::of(&workload, &slots), before);
    out_and_in(&mut workload, |_| {});
}

#[test]
fn after_it_has_prepared() {
    killed_at(Step::Prepared);
}

#[test]
fn after_it_has_armed() {
    killed_at(Step::Armed);
}

#[test]
fn when_half_is_copied() {
    killed_at(Step::HalfCopied);
}

#[test]
fn when_all_is_copied() {
    killed_at(Step::Copied);
}

#[test]
fn workers_do_not_outlive_the_program() {
    let workload = Workload::start(PIECES, Variant::BindNow);
    let process = workload.process();
    let slots = inspect(&process).unwrap();
    let prepared = prepare(&process, slots, out_into(&store()), 3).unwrap();
    let address = prepared.record().all.start;
    let armed = prepared.arm().unwrap();
    let memory = memory(&workload);
    assert_eq!(memory.read_at(&mut [0], address).unwrap(), 1);
    kill(Pid::from_raw(workload.pid()), Signal::SIGKILL).unwrap();
    let began = Instant::now();
    // The driver, too, waits for as long as the process has its memory.
    while memory
        .read_at(&mut [0], address)
        .is_ok_and(|read| read == 1)
    {
        assert!(began.elapsed() < Duration::from_secs(30), "it is kept");
        sleep(Duration::from_millis(5));
    }
    drop(armed);
}
