//! Test hosts: whole container hosts, made from Debian packages, in namespaces of their own.
//!
//! A host dies with the process that started it, however that ends, and takes its processes,
//! mounts, network and cgroups with it. Its root file system is an overlay in memory above a cached
//! one that no host ever changes.

pub mod breaking_proxy;
pub mod c_build;
pub(crate) mod cache;
pub mod disk;
pub mod docker_registry;
mod driver_orders;
pub(crate) mod end;
mod engines;
mod gpu_use;
pub mod image;
pub mod installed;
mod kind;
pub mod network;
mod no_answer;
mod operations_log;
mod outside;
pub mod records;
pub mod registry;
pub(crate) mod root_fs;

pub use engines::Daemon;
pub use kind::{Cgroups, HostKind, Suite};

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use end::{Lifeline, orphans};

use crate::check::wait::wait_until_clear;

const SUPERVISOR: &str = include_str!("../../hosts/host.sh");
const INIT: &str = include_str!("../../hosts/init.sh");
const ENTER: &str = include_str!("../../hosts/enter.sh");

/// A running test host; it ends when this is dropped.
#[derive(Debug)]
pub struct Host {
    supervisor: Child,
    lifeline: Lifeline,
    init: u32,
    name: String,
    _root_fs: root_fs::RootFs,
}

impl Host {
    /// Starts a host, after building its root file system if this machine does not have it yet.
    pub fn start(suite: Suite, cgroups: Cgroups) -> Result<Host> {
        let kind = match cgroups {
            Cgroups::Hybrid => "HYBRID",
            Cgroups::V2 => "V2",
        };
        ensure!(
            cgroups.available()?,
            "this machine has no version 1 cgroups, so it cannot run a hybrid host; use Cgroups::V2"
        );
        let root_fs = root_fs::RootFs::obtain(suite)?;
        orphans::adopt()?;
        let mut messages = tempfile::tempfile().context("making a file for the host's messages")?;
        // An interrupt typed at the test's terminal must not end the supervisor before it has
        // cleaned up. And the host's init adopts what its commands leave: were it of this session,
        // then the end of one of those, with anything stopped, would be SIGHUP for all that runs
        // the tests where they have no terminal (kill_orphaned_pgrp in the kernel's exit.c).
        let mut supervisor = Command::new("setsid")
            .args(["bash", "-c", SUPERVISOR, "host", kind])
            .args([root_fs.path(), root_fs.mountpoint()])
            .arg(INIT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages.try_clone()?)
            .spawn()
            .context("starting bash for a test host")?;
        let mut greeting = String::new();
        if let Some(stdout) = supervisor.stdout.take() {
            BufReader::new(stdout).read_line(&mut greeting)?;
        }
        let Some((name, init)) = parse_greeting(&greeting) else {
            drop(supervisor.stdin.take());
            supervisor.wait()?;
            let mut message = String::new();
            messages.rewind()?;
            messages.read_to_string(&mut message)?;
            bail!(
                "a {} test host did not start (it needs root):\n{message}",
                suite.name()
            );
        };
        let host = Host {
            lifeline: Lifeline::of(&name, supervisor.stdin.take())?,
            supervisor,
            init,
            name,
            _root_fs: root_fs,
        };
        host.configure_engines()?;
        Ok(host)
    }

    /// Returns a command that runs in the host, with a clean environment.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", ENTER, "enter", &self.init.to_string(), program]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command in the host and waits for it; an exit status other than 0 is an error with
    /// all its output.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        let (program, rest) = arguments
            .split_first()
            .context("running nothing in a test host")?;
        let output = self
            .command(program)
            .args(rest)
            .output()
            .with_context(|| format!("starting {program} in test host {}", self.name))?;
        ensure!(
            output.status.success(),
            "{} in test host {}: {}\n{}{}",
            arguments.join(" "),
            self.name,
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output)
    }

    /// Runs a command as [`Host::run`] does; returns its standard output, trimmed.
    pub fn run_for_text(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Waits until a process of this name works in the host.
    pub fn until_a_process_is(&self, name: &str) -> Result<()> {
        wait_until_clear(|| {
            let found = self.command("pgrep").args(["-x", name]).output()?;
            Ok((!found.status.success()).then(|| format!("no {name}")))
        })
    }

    /// Stops a process, by its pid in the host, and waits until all of it stands still: kill(1)
    /// sends the signal alone.
    pub fn stop(&self, pid: &str) -> Result<()> {
        self.run(&["kill", "-STOP", pid])?;
        wait_until_clear(|| {
            let states = self.run_for_text(&["ps", "-L", "-o", "stat=", "-p", pid])?;
            let is_stopped = states.lines().all(|state| state.trim().starts_with('T'));
            Ok((!is_stopped).then_some(states))
        })
    }

    /// Returns the host's root directory for this process. Absolute links inside lead out of it.
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init))
    }

    /// Returns the path, for this process, of the host's absolute path `inside`.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        self.root().join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Puts a file at an absolute path of the host, executable if the original is.
    pub fn install(&self, source: &Path, inside: &str) -> Result<()> {
        let target = self.path(inside);
        make_parent(&target)?;
        fs::copy(source, &target)
            .with_context(|| format!("copying {} into a test host", source.display()))?;
        Ok(())
    }

    /// Puts the files of a directory into a directory of the host.
    pub fn install_dir(&self, source: &Path, inside: &str) -> Result<()> {
        let entries =
            fs::read_dir(source).with_context(|| format!("reading {}", source.display()))?;
        for entry in entries {
            let file = entry?.path();
            if let (true, Some(name)) = (file.is_file(), file.file_name()) {
                self.install(&file, &format!("{inside}/{}", name.to_string_lossy()))?;
            }
        }
        Ok(())
    }

    /// Writes a file at an absolute path of the host.
    pub fn write(&self, inside: &str, content: &str) -> Result<()> {
        let target = self.path(inside);
        make_parent(&target)?;
        fs::write(&target, content).with_context(|| format!("writing {inside} in a test host"))
    }

    /// Writes a program, as [`Host::write`] does.
    pub fn script(&self, inside: &str, text: &str) -> Result<()> {
        self.write(inside, text)?;
        self.run(&["chmod", "755", inside]).map(drop)
    }

    /// Makes a device node, usable by all; `kind` is `b` or `c`.
    pub fn mknod(&self, inside: &str, kind: char, major: u32, minor: u32) -> Result<()> {
        let (kind, major, minor) = (kind.to_string(), major.to_string(), minor.to_string());
        self.run(&["mknod", "-m", "666", inside, &kind, &major, &minor])?;
        Ok(())
    }

    /// Returns the pid of the host's first process, as this process sees it.
    pub fn init(&self) -> u32 {
        self.init
    }

    /// Returns the host's name, which its cgroups bear in every hierarchy.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.lifeline.close(&self.name);
        end::await_end(&mut self.supervisor, &self.name);
    }
}

fn parse_greeting(line: &str) -> Option<(String, u32)> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("ready"), Some(name), Some(pid)) => Some((name.to_owned(), pid.parse().ok()?)),
        _ => None,
    }
}

fn make_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))
        }
        None => Ok(()),
    }
}
