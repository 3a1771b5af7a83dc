//! The shim under test, and the containers that it serves.
//!
//! `STASIS_TEST_SHIM=go` runs the same tests against containerd's own shim, whose behaviour they
//! describe.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;

use crate::check::wait::wait_until_clear;
use crate::client::containerd::{Containerd, Streams};
use crate::host::c_build;
use crate::host::image::Image;
use crate::host::installed::StasisHost;
use crate::host::{Cgroups, HostKind};

/// A shim that can be tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shim {
    /// `io.containerd.stasis.v2`.
    Stasis,
    /// `io.containerd.runc.v2`, containerd's own.
    Go,
}

impl Shim {
    /// The shim that this run of the tests is about.
    #[must_use]
    pub fn under_test() -> Self {
        match std::env::var("STASIS_TEST_SHIM").as_deref() {
            Ok("go") => Self::Go,
            _ => Self::Stasis,
        }
    }

    /// Its name as a runtime of containerd.
    #[must_use]
    pub fn runtime(self) -> &'static str {
        match self {
            Self::Stasis => "io.containerd.stasis.v2",
            Self::Go => "io.containerd.runc.v2",
        }
    }

    /// The name of its program.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Stasis => "containerd-shim-stasis-v2",
            Self::Go => "containerd-shim-runc-v2",
        }
    }
}

/// Runs checks in a host with containerd and the shim under test.
pub fn in_host(
    kind: HostKind,
    checks: &[fn(&StasisHost, &Containerd) -> Result<()>],
) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    stasis.install_shim()?;
    let _containerd = stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    let mut numbered = checks.iter().zip(1..);
    // An error that a check returns does not name the check.
    numbered.try_for_each(|(check, number)| {
        check(&stasis, &client).with_context(|| format!("check number {number}"))
    })
}

impl StasisHost {
    /// Puts the shim under test where containerd finds it; containerd's own exists already.
    pub fn install_shim(&self) -> Result<()> {
        let shim = Shim::under_test();
        if shim == Shim::Stasis {
            let program = c_build::programs()?.join(shim.program());
            let inside = format!("/usr/local/bin/{}", shim.program());
            self.host
                .install(&program, &inside)
                .context("build the workspace first (make test does)")?;
        }
        Ok(())
    }

    /// From now on containers that [`StasisHost::ctr_run`] and [`StasisHost::docker_run`] run are
    /// served by our shim, in the place of containerd's own: containerd and its clients hand a
    /// checkpoint's options on only to a runtime of that name.
    pub fn through_the_shim(mut self) -> Result<Self> {
        let program = c_build::programs()?.join(Shim::Stasis.program());
        let inside = format!("/usr/local/bin/{}", Shim::Go.program());
        self.host
            .install(&program, &inside)
            .context("build the workspace first (make test does)")?;
        self.chosen_with = ["--runtime", Shim::Go.runtime()];
        self.docker_runtime = "runc";
        Ok(self)
    }

    /// Runs a container with `ctr run` under the shim under test; returns its standard output.
    ///
    /// # Errors
    /// The exit status is not 0.
    pub fn shim_run(&self, id: &str, options: &[&str], command: &[&str]) -> Result<String> {
        let arguments = run_arguments(id, options, command);
        self.run_for_text(&arguments)
    }

    /// Runs a container as [`StasisHost::shim_run`] does; returns its exit status and its standard
    /// error.
    pub fn shim_run_status(
        &self,
        id: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<(i32, String)> {
        let arguments = run_arguments(id, options, command);
        let output = self.command("ctr").args(&arguments[1..]).output()?;
        let status = output.status.code().context("a signal ended ctr")?;
        Ok((status, String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// Makes a container without a task; [`Containerd::create`] gives it one.
    pub fn create_container(&self, id: &str, options: &[&str], command: &[&str]) -> Result<()> {
        let runtime = ["--runtime", Shim::under_test().runtime()];
        self.ctr_create(id, &[&runtime, options].concat(), command)
    }

    /// Makes a container and starts its task, without streams; returns its first process's pid.
    pub fn start_container(
        &self,
        client: &Containerd,
        id: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<u32> {
        self.create_container(id, options, command)?;
        let created = client.create(id, &Streams::default(), None)?;
        let started = client.start(id, "")?;
        ensure!(
            created == started,
            "{id} was created as {created} and started as {started}"
        );
        Ok(started)
    }

    /// Returns the pids of the shims that run in the host.
    pub fn shims(&self) -> Result<Vec<u32>> {
        self.shims_of(self.shim_program())
    }

    /// Returns the pids of the shims of a program that run in the host.
    pub fn shims_of(&self, program: &str) -> Result<Vec<u32>> {
        let mut shims = Vec::new();
        for entry in fs::read_dir(self.path("/proc"))? {
            let path = entry?.path();
            let pid = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            if let Some(pid) = pid
                && runs(&path, program)
            {
                shims.push(pid);
            }
        }
        Ok(shims)
    }

    /// Returns the shims that serve, as this process sees them, without those that containerd
    /// starts for a moment (`start`, `delete`, `-info`).
    pub fn shims_outside(&self) -> Result<Vec<Pid>> {
        let program = self.shim_program();
        let host = fs::read_link(format!("/proc/{}/ns/pid", self.host.init()))?;
        let mut shims = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            let pid = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            // Other hosts have shims, too.
            if let Some(pid) = pid
                && runs(&path, program)
                && serves(&path)
                && fs::read_link(path.join("ns/pid")).is_ok_and(|own| own == host)
            {
                shims.push(Pid::from_raw(pid));
            }
        }
        Ok(shims)
    }

    fn shim_program(&self) -> &'static str {
        if self.chosen_with == ["--runtime", Shim::Go.runtime()] {
            Shim::Go.program()
        } else {
            Shim::under_test().program()
        }
    }

    /// Whether a process of the host lives (or is a zombie).
    pub fn lives(&self, pid: u32) -> bool {
        self.path(format!("/proc/{pid}")).exists()
    }

    /// Waits until a process of the host is gone.
    pub fn until_gone(&self, pid: u32) -> Result<()> {
        wait_until_clear(|| Ok(self.lives(pid).then(|| format!("process {pid}"))))
    }

    /// Returns the parent of a process of the host.
    pub fn parent(&self, pid: u32) -> Result<u32> {
        let status = fs::read_to_string(self.path(format!("/proc/{pid}/status")))?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        Ok(parent
            .context("a process without a parent")?
            .trim()
            .parse()?)
    }

    /// Returns the path, for this process, of a container's cgroup of a version 1 controller, or of
    /// its only one of version 2.
    pub fn cgroup(&self, cgroups: Cgroups, controller: &str, id: &str) -> std::path::PathBuf {
        self.path(match cgroups {
            Cgroups::Hybrid => format!("/sys/fs/cgroup/{controller}/default/{id}"),
            Cgroups::V2 => format!("/sys/fs/cgroup/default/{id}"),
        })
    }
}

/// Whether a process of `/proc` runs a program; a process that has ended meanwhile does not, and a
/// zombie has no command line.
fn runs(process: &Path, program: &str) -> bool {
    let line = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
    let started = line.split('\0').next().map(Path::new);
    started.and_then(Path::file_name) == Some(program.as_ref())
}

fn serves(shim: &Path) -> bool {
    let line = fs::read_to_string(shim.join("cmdline")).unwrap_or_default();
    !line
        .split('\0')
        .any(|word| ["start", "delete", "-info"].contains(&word))
}

fn run_arguments<'all>(
    id: &'all str,
    options: &[&'all str],
    command: &[&'all str],
) -> Vec<&'all str> {
    let mut arguments = vec!["ctr", "run", "--cpu-shares", "0", "--runtime"];
    arguments.push(Shim::under_test().runtime());
    arguments.extend_from_slice(options);
    arguments.extend([Image::DEFAULT_NAME, id]);
    arguments.extend_from_slice(command);
    arguments
}
