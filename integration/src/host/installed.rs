//! A test host with stasis installed: the runtime, its settings, a driver and the workloads.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::host::c_build;
use crate::host::image::Image;
use crate::host::{Cgroups, Daemon, Host, HostKind, Suite};

/// The path of the runtime in a test host.
pub const RUNTIME: &str = "/usr/local/bin/stasis-runtime";
/// The operator's program there.
pub const PROGRAM: &str = "/usr/local/bin/stasis";
/// The same program by the name of NVIDIA's.
pub const CUDA_CHECKPOINT: &str = "/usr/local/bin/cuda-checkpoint";
/// The plugin for CRIU.
pub const PLUGIN: &str = "/usr/local/lib/stasis/libstasis_memory.so";
/// The settings of a test host.
pub const SETTINGS: &str = "/etc/stasis/stasis.toml";
/// The directory in which the stand-in for the driver looks for orders.
pub(super) const DRIVER_ORDERS: &str = "/run/stasis-standin";
/// The directory of self-test results, by build of the driver.
pub const SELF_TESTS: &str = "/run/stasis/gpu-self-test";
/// The verdict there that holds for all kinds of restores.
const PASSED: &str = r#""copying":"passed","surveys":"passed""#;
/// The engine's log of operations.
pub const OPERATIONS_LOG: &str = "/var/log/stasis/operations.log";
/// The directory of a driver's libraries, as on machines whose driver is mounted.
pub const DRIVER: &str = "/usr/local/nvidia";
/// The options with which a container gets the GPU.
pub const DEVICES: [&str; 3] = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"];

/// A host to try stasis in.
#[derive(Debug)]
pub struct StasisHost {
    /// The host.
    pub host: Host,
    /// The cgroups that it sees.
    pub cgroups: Cgroups,
    /// The low-level runtime that it was started with.
    pub low_level: String,
    pub(crate) image: PathBuf,
    /// How `ctr run` chooses stasis.
    pub(crate) chosen_with: [&'static str; 2],
    /// Docker's name for the runtime that is stasis.
    pub(crate) docker_runtime: &'static str,
}

impl StasisHost {
    /// Starts a host of this kind with stasis in it.
    pub fn of(kind: HostKind) -> Result<Self> {
        Self::start(kind.suite, kind.cgroups, kind.low_level)
    }

    /// Starts a host with stasis in front of the low-level runtime `low_level`.
    pub fn start(suite: Suite, cgroups: Cgroups, low_level: &str) -> Result<Self> {
        let built = c_build::build()?;
        let host = Host::start(suite, cgroups)?;
        if low_level == "crun" && cgroups == Cgroups::Hybrid {
            crun_takes_hybrid_cgroups(&host)?;
        }
        let runtime = c_build::programs()?.join("stasis-runtime");
        host.install(&runtime, RUNTIME)
            .context("build the workspace first (make test does)")?;
        // As `make install` has it.
        host.install(&c_build::programs()?.join("stasis"), PROGRAM)?;
        host.run(&["ln", "-s", "stasis", CUDA_CHECKPOINT])?;
        host.install(&c_build::plugin()?, PLUGIN)?;
        if !c_build::has_gpu() {
            host.install_dir(&built.join("lib64"), &format!("{DRIVER}/lib64"))?;
            for (path, kind, major, minor) in c_build::NODES {
                host.mknod(path, kind, major, minor)?;
            }
        }
        let stasis = Self {
            host,
            cgroups,
            low_level: low_level.to_owned(),
            image: write_image(built)?,
            chosen_with: ["--runc-binary", RUNTIME],
            docker_runtime: "stasis",
        };
        stasis.set(low_level, "")?;
        stasis.run(&["mkdir", "-p", DRIVER_ORDERS, "/images"])?;
        if !c_build::has_gpu() {
            stasis.has_tried_the_driver()?;
        }
        Ok(stasis)
    }

    /// Runs `stasis doctor --self-test` in the first host, and copies its result to later ones.
    fn has_tried_the_driver(&self) -> Result<()> {
        static RESULT: Mutex<Option<(OsString, String)>> = Mutex::new(None);
        let results = self.path(SELF_TESTS);
        let mut result = RESULT.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((name, text)) = &*result else {
            // The self-test may give up on a busy machine, and its result would stay.
            let mut said = String::new();
            for _ in 0..3 {
                self.run(&[PROGRAM, "doctor", "--self-test"])?;
                let entry = fs::read_dir(&results)?.next().context("no result")??;
                said = fs::read_to_string(entry.path())?;
                if said.contains(PASSED) {
                    *result = Some((entry.file_name(), said));
                    return Ok(());
                }
                fs::remove_file(entry.path())?;
            }
            bail!("the self-test does not pass: {said}")
        };
        self.run(&["install", "-d", "-m", "700", SELF_TESTS])?;
        Ok(fs::write(results.join(name), text)?)
    }

    /// See [`Host::run`].
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        self.host.run(arguments)
    }

    /// See [`Host::run_for_text`].
    pub fn run_for_text(&self, arguments: &[&str]) -> Result<String> {
        self.host.run_for_text(arguments)
    }

    /// See [`Host::path`].
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        self.host.path(inside)
    }

    /// See [`Host::write`].
    pub fn write(&self, inside: &str, content: &str) -> Result<()> {
        self.host.write(inside, content)
    }

    /// See [`Host::script`].
    pub fn script(&self, inside: &str, text: &str) -> Result<()> {
        self.host.script(inside, text)
    }

    /// Writes the settings: the low-level runtime, and more.
    pub fn set(&self, low_level: &str, more: &str) -> Result<()> {
        let lib = format!("{DRIVER}/lib64");
        let driver = format!(
            "driver.libcuda = \"{lib}/libcuda.so.1\"\ndriver.nvml = \"{lib}/libnvidia-ml.so.1\"\n"
        );
        let driver = if more.contains("driver.libcuda") {
            String::new()
        } else {
            driver
        };
        // The tests' processes have little GPU memory.
        let minimum = if more.contains("gpu_checkpoint.minimum_mib") {
            ""
        } else {
            "gpu_checkpoint.minimum_mib = 1\n"
        };
        self.write(
            SETTINGS,
            &format!("runtime.path = \"{low_level}\"\n{driver}{minimum}{more}"),
        )
    }

    /// Starts such a host with containerd, which ends with the host.
    pub fn with_containerd(kind: HostKind) -> Result<Self> {
        let stasis = Self::of(kind)?;
        std::mem::forget(stasis.containerd()?);
        Ok(stasis)
    }

    /// Starts containerd with the test image in it.
    pub fn containerd(&self) -> Result<Daemon<'_>> {
        let daemon = self.host.containerd()?;
        let archive = self.install_image()?;
        self.run(&["ctr", "image", "import", "--snapshotter", "native", archive])?;
        Ok(daemon)
    }

    /// Puts the test image's archive into the host; returns its path there.
    pub fn install_image(&self) -> Result<&'static str> {
        const ARCHIVE: &str = "/images/test.tar";
        self.host.install(&self.image, ARCHIVE)?;
        Ok(ARCHIVE)
    }

    /// Sends a packet to a workload and returns its answer; `None`: no process listens there, or
    /// there is no answer within a minute.
    pub fn ask(&self, port: u16) -> Result<Option<String>> {
        self.ask_within(port, 60)
    }

    /// Whether a workload that is sent a packet has not answered after 2 s.
    pub fn is_silent(&self, port: u16) -> Result<bool> {
        Ok(self.ask_within(port, 2)?.is_none())
    }

    /// As [`StasisHost::ask`], within this many seconds.
    fn ask_within(&self, port: u16, seconds: u32) -> Result<Option<String>> {
        let script = format!(
            "exec 3<>/dev/udp/127.0.0.1/{port}; echo x >&3; timeout {seconds} head -n 1 <&3"
        );
        let output = self.host.command("bash").args(["-c", &script]).output()?;
        let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Some(answer).filter(|answer| !answer.is_empty()))
    }

    /// Asks until there is an answer, for at most two minutes: memory takes its time on a busy
    /// machine. A workload counts questions, so one that it has got is not asked again.
    pub fn ask_until_up(&self, port: u16) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(answer) = self.ask(port)? {
                return Ok(answer);
            }
            ensure!(
                Instant::now() < deadline,
                "no answer from port {port} within 120 s\n{}",
                self.why_no_answer()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a command that has to fail; returns its standard error.
    pub fn fails(&self, arguments: &[&str]) -> Result<String> {
        let (program, rest) = arguments.split_first().context("no command")?;
        let output = self.command(program).args(rest).output()?;
        if output.status.success() {
            bail!("{} succeeded and had to fail", arguments.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Has `stasis check` find the container `name` of an engine (`podman` or `docker`) by the
    /// beginning of its id alone, and nothing in the way of its checkpoint.
    pub fn check(&self, engine: &str, name: &str) -> Result<()> {
        let inspect = [engine, "inspect", "--format", "{{.Id}}", name];
        let id = self.run_for_text(&inspect)?;
        let stdout = self.run_for_text(&[PROGRAM, "check", &id[..12]])?;
        ensure!(stdout.contains("a checkpoint would begin"), "{stdout}");
        Ok(())
    }

    /// Returns a command in the host.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.host.command(program)
    }
}

impl Drop for StasisHost {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.image);
    }
}

/// Checks that version 2 has no controllers: crun refuses such hosts (its `cgroup.c`).
fn crun_takes_hybrid_cgroups(host: &Host) -> Result<()> {
    let file = host.path("/sys/fs/cgroup/unified/cgroup.controllers");
    let controllers = fs::read_to_string(file)?;
    let controllers = controllers.trim();
    ensure!(
        controllers.is_empty(),
        "crun refuses this host: cgroups of version 2 have been handed the controllers \
         {controllers:?} beside version 1, and they are in use, so they could not be taken back; \
         see cgroup.subtree_control below /sys/fs/cgroup/unified of the machine"
    );
    Ok(())
}

fn write_image(built: &Path) -> Result<PathBuf> {
    let mut image = Image::new(Image::DEFAULT_NAME)?;
    for name in c_build::WORKLOADS {
        image = image.program(&built.join("bin").join(name))?;
    }
    let (_, path) = tempfile::NamedTempFile::new_in(c_build::programs()?)?.keep()?;
    image.write(&path)?;
    Ok(path)
}
