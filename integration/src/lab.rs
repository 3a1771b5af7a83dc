//! A test host with stasis installed: the runtime, its settings, a driver and the workloads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::host::{Cgroups, Daemon, Host, Suite};
use crate::image::Image;
use crate::native;

/// Where the runtime is in a lab.
pub const RUNTIME: &str = "/usr/local/bin/stasis-runtime";
/// The operator's program there.
pub const PROGRAM: &str = "/usr/local/bin/stasis";
/// The same by the name of NVIDIA's.
pub const CUDA_CHECKPOINT: &str = "/usr/local/bin/cuda-checkpoint";
/// The plugin for CRIU.
pub const PLUGIN: &str = "/usr/local/lib/stasis/libstasis_memory.so";
/// The settings of a lab.
pub const SETTINGS: &str = "/etc/stasis/stasis.toml";
/// The orders for the stand-in.
pub const FAULTS: &str = "/run/stasis-standin/faults";
/// The engine's log of operations.
pub const OPERATIONS_LOG: &str = "/var/log/stasis/operations.log";
/// Where a driver's libraries are, as on machines whose driver is mounted.
pub const DRIVER: &str = "/usr/local/nvidia";
/// The options with which a container gets the GPU.
pub const DEVICES: [&str; 3] = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"];

/// A host to try stasis in.
#[derive(Debug)]
pub struct Lab {
    /// The host.
    pub host: Host,
    /// The low-level runtime that it was started with.
    pub low_level: String,
    pub(crate) image: PathBuf,
    /// How `ctr run` chooses stasis.
    pub(crate) chosen_with: [&'static str; 2],
    /// Docker's name for the runtime that is stasis.
    pub(crate) docker_runtime: &'static str,
}

impl Lab {
    /// Starts a host with stasis in front of the low-level runtime `low_level`.
    ///
    /// # Errors
    /// Whatever is missing.
    pub fn start(suite: Suite, cgroups: Cgroups, low_level: &str) -> Result<Self> {
        let built = native::build()?;
        let host = Host::start(suite, cgroups)?;
        let runtime = native::programs()?.join("stasis-runtime");
        host.install(&runtime, RUNTIME)
            .context("build the workspace first (make test does)")?;
        // As `make install` has it.
        host.install(&native::programs()?.join("stasis"), PROGRAM)?;
        host.run(&["ln", "-s", "stasis", CUDA_CHECKPOINT])?;
        host.install(&native::plugin()?, PLUGIN)?;
        if !native::has_gpu() {
            host.install_dir(&built.join("lib64"), &format!("{DRIVER}/lib64"))?;
            for (path, kind, major, minor) in native::NODES {
                host.mknod(path, kind, major, minor)?;
            }
        }
        let lab = Self {
            host,
            low_level: low_level.to_owned(),
            image: write_image(built)?,
            chosen_with: ["--runc-binary", RUNTIME],
            docker_runtime: "stasis",
        };
        lab.set(low_level, "")?;
        lab.host
            .run(&["mkdir", "-p", "/run/stasis-standin", "/images"])?;
        Ok(lab)
    }

    /// Writes the settings: the low-level runtime, and whatever else.
    ///
    /// # Errors
    /// What the kernel said.
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
        // The switch for huge pages is the machine's: hosts that run at the same time would take
        // each other's setting for the one to put back.
        let huge_pages = if native::has_gpu() || more.contains("huge_pages") {
            ""
        } else {
            "gpu_checkpoint.huge_pages = false\n"
        };
        self.host.write(
            SETTINGS,
            &format!("runtime.path = \"{low_level}\"\n{driver}{huge_pages}{more}"),
        )
    }

    /// Starts containerd with the test image in it.
    ///
    /// # Errors
    /// What containerd or ctr said.
    pub fn containerd(&self) -> Result<Daemon<'_>> {
        let daemon = self.host.containerd()?;
        let archive = self.install_image()?;
        self.host
            .run(&["ctr", "image", "import", "--snapshotter", "native", archive])?;
        Ok(daemon)
    }

    /// Puts the test image's archive into the host; its path there.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn install_image(&self) -> Result<&'static str> {
        const ARCHIVE: &str = "/images/test.tar";
        self.host.install(&self.image, ARCHIVE)?;
        Ok(ARCHIVE)
    }

    /// Orders faults of the stand-in, one a line: CALL TAG ACTION [COUNT].
    ///
    /// # Errors
    /// What the kernel said.
    pub fn order(&self, faults: &str) -> Result<()> {
        self.host.write(FAULTS, &format!("{faults}\n"))
    }

    /// Sends a packet to a workload and gives its answer; `None` if there is none within 2 s.
    ///
    /// # Errors
    /// The packet cannot be sent.
    pub fn ask(&self, port: u16) -> Result<Option<String>> {
        self.ask_within(port, 2)
    }

    /// The same for a workload that needs more time to answer, in seconds.
    ///
    /// # Errors
    /// As [`Lab::ask`].
    pub fn ask_within(&self, port: u16, seconds: u32) -> Result<Option<String>> {
        let script = format!(
            "exec 3<>/dev/udp/127.0.0.1/{port}; echo x >&3; timeout {seconds} head -n 1 <&3"
        );
        let output = self.host.command("bash").args(["-c", &script]).output()?;
        let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Some(answer).filter(|answer| !answer.is_empty()))
    }

    /// Asks until there is an answer, for at most 20 s.
    ///
    /// # Errors
    /// There was none.
    pub fn ask_until_up(&self, port: u16) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(answer) = self.ask(port)? {
                return Ok(answer);
            }
            ensure!(
                Instant::now() < deadline,
                "no answer from port {port} within 20 s"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a command that has to fail; gives what it wrote to standard error.
    ///
    /// # Errors
    /// It succeeded.
    pub fn fails(&self, arguments: &[&str]) -> Result<String> {
        let (program, rest) = arguments.split_first().context("no command")?;
        let output = self.command(program).args(rest).output()?;
        if output.status.success() {
            bail!("{} succeeded and had to fail", arguments.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Has `stasis check` find the container `name` of an engine (`podman` or `docker`) by the beginning of
    /// its id alone, and nothing in the way of its checkpoint.
    ///
    /// # Errors
    /// What the engine or `stasis` said.
    pub fn check(&self, engine: &str, name: &str) -> Result<()> {
        let inspect = [engine, "inspect", "--format", "{{.Id}}", name];
        let id = self.host.run_for_text(&inspect)?;
        let said = self.host.run_for_text(&[PROGRAM, "check", &id[..12]])?;
        ensure!(said.contains("a checkpoint would begin"), "{said}");
        Ok(())
    }

    /// How many descriptors of the GPU's device nodes processes of the host hold.
    ///
    /// # Errors
    /// The host's `/proc` cannot be read.
    pub fn gpu_descriptors(&self) -> Result<usize> {
        Ok(self.gpu_descriptors_by_process()?.iter().sum())
    }

    /// How many processes of the host have the GPU's device nodes open.
    ///
    /// # Errors
    /// The host's `/proc` cannot be read.
    pub fn gpu_processes(&self) -> Result<usize> {
        let counts = self.gpu_descriptors_by_process()?;
        Ok(counts.iter().filter(|count| **count > 0).count())
    }

    fn gpu_descriptors_by_process(&self) -> Result<Vec<usize>> {
        let mut counts = Vec::new();
        for process in fs::read_dir(self.host.path("/proc"))? {
            // Not every entry is a process, and processes end meanwhile.
            let Ok(descriptors) = fs::read_dir(process?.path().join("fd")) else {
                continue;
            };
            let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            let on_gpu = targets.filter(|target| target.starts_with("/dev") && is_gpu_node(target));
            counts.push(on_gpu.count());
        }
        Ok(counts)
    }

    /// The last line about an operation ("checkpoint", "restore") in the engine's log.
    ///
    /// # Errors
    /// There is none.
    pub fn operation(&self, name: &str) -> Result<serde_json::Value> {
        let log = fs::read_to_string(self.host.path(OPERATIONS_LOG))?;
        for line in log.lines().rev() {
            let line: serde_json::Value = serde_json::from_str(line)?;
            if line["operation"] == name {
                return Ok(line);
            }
        }
        bail!("no {name} is logged")
    }

    /// What `engine` (`podman` or `docker`) and stasis have to say after a failure.
    #[must_use]
    pub fn account(&self, engine: &str) -> String {
        let script = format!(
            "{engine} ps -a; {engine} logs $({engine} ps -aq | head -n 1); tail -n 3 {OPERATIONS_LOG}"
        );
        let output = self.host.command("bash").args(["-c", &script]).output();
        output.map_or_else(
            |error| error.to_string(),
            |output| {
                let (said, errors) = (&output.stdout, &output.stderr);
                format!(
                    "{}{}",
                    String::from_utf8_lossy(said),
                    String::from_utf8_lossy(errors)
                )
            },
        )
    }

    /// A command in the host.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.host.command(program)
    }

    /// The last line of the engine's log of operations.
    ///
    /// # Errors
    /// There is none.
    pub fn last_operation(&self) -> Result<serde_json::Value> {
        let log = fs::read_to_string(self.host.path(OPERATIONS_LOG))?;
        let line = log.lines().last().context("no operation is logged")?;
        Ok(serde_json::from_str(line)?)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.image);
    }
}

fn is_gpu_node(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("nvidia"))
}

fn write_image(built: &Path) -> Result<PathBuf> {
    let mut image = Image::new(Image::DEFAULT_NAME)?;
    for name in native::WORKLOADS {
        image = image.program(&built.join("bin").join(name))?;
    }
    let (_, path) = tempfile::NamedTempFile::new_in(native::programs()?)?.keep()?;
    image.write(&path)?;
    Ok(path)
}
