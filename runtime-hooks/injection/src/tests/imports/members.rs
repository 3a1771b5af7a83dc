//! Two programs: one has memory, and the other imports it.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use stasis_linux::ProcessRef;
use stasis_remote_call::memory;
use tempfile::TempDir;

use super::{COUNT, Place, Visit};
use crate::imports::Visited;
use crate::survey::{Removed, VisitRecord, prepare, remove};
use crate::tests::program::build_with_library;

/// Length of an allocation.
pub(super) const BYTES: u64 = 64 << 10;

/// A program, and its state before.
struct Program {
    process: ProcessRef,
    /// Addresses and handles of its allocations.
    places: Vec<Place>,
    files: Vec<String>,
    thread: i32,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    mappings: usize,
    descriptors: usize,
    record: Option<VisitRecord>,
}

/// The two programs.
pub(super) struct Pair {
    owner: Program,
    importer: Program,
    contents: Vec<Vec<u8>>,
    _directory: TempDir,
}

impl Pair {
    pub(super) fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let source = include_str!("../imports.c");
        let path = build_with_library(directory.path(), "imports", source);
        let owner = Program::start(&path, &[]);
        let files: Vec<String> = owner.files.iter().rev().cloned().collect();
        let importer = Program::start(&path, &files);
        let mut pair = Self {
            owner,
            importer,
            contents: Vec::new(),
            _directory: directory,
        };
        pair.contents = pair.read();
        assert_eq!(pair.contents.len(), 2 * COUNT);
        assert_eq!(pair.contents.first(), pair.contents.last(), "they share it");
        assert_ne!(pair.contents[0], pair.contents[1]);
        pair
    }

    fn each(&mut self) -> [&mut Program; 2] {
        [&mut self.owner, &mut self.importer]
    }

    /// Puts code of ours into both programs.
    pub(super) fn prepare(&mut self) {
        for program in self.each() {
            program.record = Some(prepare(&program.process, program.thread).unwrap());
        }
    }

    /// Whether a child that the importer forks now can import memory itself.
    pub(super) fn can_child_import(&mut self) -> bool {
        writeln!(self.importer.input, "fork").unwrap();
        self.importer.output.next().unwrap().unwrap() == "1"
    }

    /// Returns both as they are visited, with their allocations.
    pub(super) fn visits(&self) -> [Visit<'_>; 2] {
        [&self.owner, &self.importer].map(|program| {
            let record = program.record.as_ref().unwrap();
            let process = &program.process;
            (Visited { process, record }, program.places.as_slice())
        })
    }

    /// Removes our code from both; nothing else may be left, either.
    pub(super) fn is_as_it_was(&mut self) {
        for program in self.each() {
            let record = program.record.take().unwrap();
            let removed = remove(&program.process, &record).unwrap();
            assert!(matches!(removed, Removed::Gone), "{removed:?}");
            program.goes_on();
            assert_eq!(program.mappings(), program.mappings);
            assert_eq!(program.descriptors(), program.descriptors);
        }
        assert!(self.read() == self.contents, "contents have changed");
    }

    fn read(&self) -> Vec<Vec<u8>> {
        let all = [&self.owner, &self.importer].into_iter();
        let all =
            all.flat_map(|program| program.places.iter().map(|(place, _)| program.read(*place)));
        all.collect()
    }
}

impl Program {
    fn start(path: &Path, files: &[String]) -> Self {
        let mut child = Command::new(path)
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = output.next().unwrap().unwrap();
        let numbers: Vec<u64> = first.split(' ').map(|it| it.parse().unwrap()).collect();
        let pid = child.id();
        let mut program = Self {
            process: ProcessRef::open(pid.try_into().unwrap()).unwrap().unwrap(),
            places: numbers[1..]
                .chunks(3)
                .map(|each| (each[0], each[2]))
                .collect(),
            files: numbers[1..]
                .chunks(3)
                .map(|each| format!("/proc/{pid}/fd/{}", each[1]))
                .collect(),
            thread: numbers[0].try_into().unwrap(),
            input: child.stdin.take().unwrap(),
            child,
            output,
            mappings: 0,
            descriptors: 0,
            record: None,
        };
        program.goes_on();
        program.mappings = program.mappings();
        program.descriptors = program.descriptors();
        program
    }

    /// Its thread waits again and again, each time to the end.
    fn goes_on(&mut self) {
        writeln!(self.input).unwrap();
        assert_ne!(self.output.next().unwrap().unwrap(), "0");
    }

    fn read(&self, place: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(BYTES).unwrap()];
        memory::read(self.process.pid(), place, &mut bytes).unwrap();
        bytes
    }

    fn mappings(&self) -> usize {
        let maps = format!("/proc/{}/maps", self.child.id());
        fs::read_to_string(maps).unwrap().lines().count()
    }

    fn descriptors(&self) -> usize {
        let all = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        all.unwrap().count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
