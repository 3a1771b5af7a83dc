//! A program in C that uses a stand-in for the driver's library.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use stasis_linux::ProcessRef;
use tempfile::TempDir;

/// A program that follows commands, one word at a time. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Workload {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _directory: TempDir,
}

/// How a program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// With lazy binding.
    Lazy,
    /// With LD_BIND_NOW.
    BindNow,
    /// With a driver's library whose slots are read-only.
    FullRelro,
    /// With a driver's library that has no build id.
    NoBuildId,
    /// With the driver's library in a second namespace of the linker.
    Twice,
    /// A thread takes every child that there is (`__WALL`).
    Taker,
    /// Hundreds of threads.
    Crowd,
    /// All memory is locked (mlockall(2)).
    Locked,
    /// A filter that kills it for nearly all system calls.
    Filtered,
}

impl Workload {
    /// Starts a program with `pieces` times 2 MiB of "GPU" memory.
    pub(super) fn start(pieces: u64, variant: Variant) -> Self {
        let directory = TempDir::new().unwrap();
        let program = build(directory.path(), variant);
        let mut command = Command::new(program);
        command
            .arg(pieces.to_string())
            .env_remove("LD_BIND_NOW")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        match variant {
            Variant::Lazy | Variant::FullRelro | Variant::NoBuildId => {}
            Variant::BindNow => drop(command.env("LD_BIND_NOW", "1")),
            Variant::Twice => drop(command.arg("twice")),
            Variant::Taker => drop(command.arg("taker")),
            Variant::Crowd => drop(command.arg("crowd")),
            Variant::Locked => drop(command.arg("locked")),
            Variant::Filtered => drop(command.arg("filtered")),
        }
        let mut child = command.spawn().unwrap();
        let mut workload = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            _directory: directory,
        };
        assert_eq!(workload.answer(), 0);
        assert_eq!(workload.tell("nothing"), 0);
        workload
    }

    pub(super) fn tell(&mut self, word: &str) -> u64 {
        self.begin(word);
        self.answer()
    }

    /// Sends it a word, and does not wait for the answer.
    pub(super) fn begin(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    pub(super) fn answer(&mut self) -> u64 {
        self.output.next().unwrap().unwrap().parse().unwrap()
    }

    pub(super) fn process(&self) -> ProcessRef {
        ProcessRef::open(self.pid()).unwrap().unwrap()
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build(directory: &Path, variant: Variant) -> std::path::PathBuf {
    let binding = match variant {
        Variant::FullRelro => "-Wl,-z,now,-z,relro",
        Variant::NoBuildId => "-Wl,-z,lazy,--build-id=none",
        _ => "-Wl,-z,lazy",
    };
    let at = |name: &str| directory.join(name);
    let (library, program) = (at("libcuda.so.1"), at("workload"));
    fs::write(at("driver.c"), include_str!("driver.c")).unwrap();
    fs::write(at("workload.c"), include_str!("workload.c")).unwrap();
    compile(
        Command::new("cc")
            .args(["-O1", "-fno-builtin", "-fno-tree-loop-distribute-patterns"])
            .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", binding])
            .arg("-o")
            .args([&library, &at("driver.c")]),
    );
    compile(
        Command::new("cc")
            .args(["-O1", "-pthread", "-Wl,-z,lazy"])
            .arg(format!("-Wl,-rpath,{}", directory.display()))
            .arg("-o")
            .args([&program, &at("workload.c"), &library])
            .arg("-ldl"),
    );
    program
}

fn compile(compiler: &mut Command) {
    assert!(compiler.status().unwrap().success());
}

/// Compiles a source of that name twice: as a driver's library, and as a program that uses it.
pub(super) fn build_with_library(directory: &Path, name: &str, source: &str) -> PathBuf {
    let at = |name: &str| directory.join(name);
    let (file, library, program) = (at(&format!("{name}.c")), at("libcuda.so.1"), at(name));
    fs::write(&file, source).unwrap();
    let cc = || {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-pthread", "-o"]);
        cc
    };
    let shared = ["-DLIBRARY", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile(cc().args([&library, &file]).args(shared));
    let path = format!("-Wl,-rpath,{}", directory.display());
    compile(cc().args([&program, &file, &library]).arg(path));
    program
}
