//! The driver's thread is asked, and the asking process may be killed.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_linux::ProcessRef;
use tempfile::TempDir;

use super::program::build_with_library;
use crate::survey::{Kind, Removed, VisitRecord, ask, prepare, remove};

const BYTES: u64 = 64 << 20;
/// Environment variable for the asking process: the program's pid, and the record.
const ASKED: &str = "STASIS_TEST_ASKED";

/// A program, and the file that keeps its thread inside of its library.
struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    memory: u64,
    thread: i32,
    directory: TempDir,
}

impl Program {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let source = include_str!("survey.c");
        let program = build_with_library(directory.path(), "survey", source);
        let mut child = Command::new(program)
            .arg(directory.path().join("gate"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = output.next().unwrap().unwrap();
        let (memory, thread) = first.split_once(' ').unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output,
            child,
            memory: memory.parse().unwrap(),
            thread: thread.parse().unwrap(),
            directory,
        }
    }

    fn process(&self) -> ProcessRef {
        let pid = i32::try_from(self.child.id()).unwrap();
        ProcessRef::open(pid).unwrap().unwrap()
    }

    fn gate(&self) -> PathBuf {
        self.directory.path().join("gate")
    }

    /// Returns the path of the gate, once its thread has reached it.
    fn reached(&self) -> PathBuf {
        self.directory.path().join("gate.reached")
    }

    /// Its thread waits again and again, each time to the end.
    fn goes_on(&mut self) {
        writeln!(self.input).unwrap();
        assert_ne!(self.output.next().unwrap().unwrap(), "0");
    }

    fn mappings(&self) -> usize {
        let maps = format!("/proc/{}/maps", self.child.id());
        fs::read_to_string(maps).unwrap().lines().count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_there_is_is_told_again_and_again_and_nothing_is_left() {
    let mut program = Program::start();
    let process = program.process();
    program.goes_on();
    let before = program.mappings();
    for _ in 0..20 {
        let prepared = prepare(&process, program.thread).unwrap();
        let found = ask(&process, &prepared).unwrap();
        let own = found
            .allocations
            .iter()
            .find(|each| each.address == program.memory);
        let own = own.unwrap();
        assert_eq!((own.bytes, own.kind), (BYTES, Kind::Ordinary as u64));
        assert!(matches!(
            remove(&process, &prepared).unwrap(),
            Removed::Gone
        ));
        assert_eq!(program.mappings(), before);
        program.goes_on();
    }
}

/// Not a test: the asking process, which is killed.
#[test]
#[ignore = "started by others"]
fn the_process_that_asks() {
    let Ok(told) = std::env::var(ASKED) else {
        return;
    };
    let (pid, record) = told.split_once(' ').unwrap();
    let process = ProcessRef::open(pid.parse().unwrap()).unwrap().unwrap();
    let record: VisitRecord = serde_json::from_str(record).unwrap();
    let _ = ask(&process, &record);
}

fn asking(program: &Program, record: &VisitRecord) -> Child {
    let record = serde_json::to_string(record).unwrap();
    let test = "tests::survey::the_process_that_asks";
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored"])
        .env(ASKED, format!("{} {record}", program.child.id()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The call goes on, and its memory stays mapped.
#[test]
fn a_thread_that_is_inside_of_the_library_is_left_alone_until_it_comes_back() {
    let mut program = Program::start();
    let process = program.process();
    let before = program.mappings();
    let prepared = prepare(&process, program.thread).unwrap();
    fs::write(program.gate(), "").unwrap();
    let mut asking = asking(&program, &prepared);
    until(|| program.reached().exists());
    asking.kill().unwrap();
    asking.wait().unwrap();
    assert!(matches!(
        remove(&process, &prepared).unwrap(),
        Removed::InUse
    ));
    fs::remove_file(program.reached()).unwrap();
    assert!(matches!(
        remove(&process, &prepared).unwrap(),
        Removed::Gone
    ));
    assert_eq!(program.mappings(), before);
    program.goes_on();
}

/// The asking process is killed at any time.
#[test]
fn the_thread_comes_back_whenever_who_asks_is_killed() {
    let mut program = Program::start();
    let process = program.process();
    let before = program.mappings();
    for round in 0..40 {
        let prepared = prepare(&process, program.thread).unwrap();
        let mut asking = asking(&program, &prepared);
        sleep(Duration::from_micros(round * 500));
        asking.kill().unwrap();
        asking.wait().unwrap();
        let removed = remove(&process, &prepared).unwrap();
        assert!(matches!(removed, Removed::Gone), "{round}: {removed:?}");
        assert_eq!(program.mappings(), before, "{round}");
        program.goes_on();
    }
}

fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(1));
    }
}
