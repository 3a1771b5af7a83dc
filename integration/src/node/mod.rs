//! A node: a whole machine with systemd and a kernel of its own, emulated by QEMU.
//!
//! A test host shares the machine's kernel and has no init system. A node has Debian 12's kernel,
//! systemd as its first process, version 2 cgroups with all controllers, and a disk that survives a
//! power failure. A node is slow, so only tests that need one of these run on it.

mod disk;
mod guest;

use std::fs;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::host::c_build;
use crate::host::image::Image;
use crate::node::disk::Base;
use crate::node::guest::Guest;
pub use crate::node::guest::Output;

const RUN: &str = include_str!("../../hosts/node/run.sh");
const UNIT: &str = include_str!("../../../config/systemd/stasis-recover.service");
const INSTALL: &str = include_str!("../../hosts/node/install.sh");

/// A node that runs.
#[derive(Debug)]
pub struct Node {
    directory: TempDir,
    base: Base,
    running: Running,
}

/// A running QEMU; it ends, as by a power failure, when this is dropped.
#[derive(Debug)]
struct Running {
    guest: Guest,
    supervisor: Child,
    lifeline: Option<ChildStdin>,
}

impl Node {
    /// Boots a new node with stasis, the stand-in driver and containerd's test image on it.
    pub fn boot() -> Result<Self> {
        let base = Base::obtain()?;
        let directory = tempfile::tempdir()?;
        base.make_disk(&directory.path().join("disk"))?;
        bring_along(&directory.path().join("machine"))?;
        let running = Running::start(&base, directory.path())?;
        let mut node = Self {
            directory,
            base,
            running,
        };
        node.run(INSTALL)?;
        Ok(node)
    }

    /// Takes the power away, in the middle of whatever the node does, and boots again. Data that
    /// had not reached the disk are lost.
    pub fn lose_power(mut self) -> Result<Self> {
        self.running.end()?;
        self.running = Running::start(&self.base, self.directory.path())?;
        Ok(self)
    }

    /// Runs a shell script as root, which has to succeed; returns its standard output.
    pub fn run(&mut self, script: &str) -> Result<String> {
        let output = self.try_run(script)?;
        ensure!(output.code == Some(0), "{script}\n{output:#?}");
        Ok(output.stdout)
    }

    /// Runs a shell script as root.
    pub fn try_run(&mut self, script: &str) -> Result<Output> {
        // The agent's own environment is empty.
        let script = format!(
            "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root\n{script}"
        );
        self.running.guest.run(&script)
    }
}

impl Running {
    fn start(base: &Base, directory: &Path) -> Result<Self> {
        let console = directory.join("console");
        let messages = fs::File::create(&console)?;
        let mut supervisor = qemu(base, directory)
            .stdin(Stdio::piped())
            .stdout(messages.try_clone()?)
            .stderr(messages)
            .spawn()
            .context("starting bash for a node")?;
        let lifeline = supervisor.stdin.take();
        let guest = Guest::meet(&directory.join("agent"));
        let guest = guest.with_context(|| fs::read_to_string(&console).unwrap_or_default())?;
        Ok(Self {
            guest,
            supervisor,
            lifeline,
        })
    }

    fn end(&mut self) -> Result<()> {
        drop(self.lifeline.take());
        self.supervisor.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failure here cannot be handled.
        let _ = self.end();
    }
}

/// QEMU, with two emulated processors: the machine's virtualization may be hidden from it.
fn qemu(base: &Base, directory: &Path) -> Command {
    let disk = directory.join("disk");
    let machine = directory.join("machine");
    let agent = directory.join("agent");
    let mut qemu = Command::new("bash");
    qemu.args(["-c", RUN, "run"]);
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
    qemu.args(["-smp", "2", "-m", "2G"]);
    qemu.arg("-kernel").arg(base.kernel());
    qemu.arg("-initrd").arg(base.initrd());
    // Where other tests take the processors, the emulated timer does not tick as often as the
    // kernel's check of it wants, and it does not boot (arch/x86/kernel/apic/io_apic.c,
    // `check_timer`).
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
    qemu.args(["-serial", "stdio"]);
    let disk = format!("file={},if=virtio,format=qcow2", disk.display());
    qemu.args(["-drive", &disk]);
    let machine = format!(
        "local,path={},mount_tag=machine,security_model=none,readonly=on",
        machine.display()
    );
    qemu.args(["-virtfs", &machine]);
    let agent = format!(
        "socket,id=agent,path={},server=on,wait=off",
        agent.display()
    );
    qemu.args(["-device", "virtio-serial", "-chardev", &agent]);
    let port = "virtserialport,chardev=agent,name=org.qemu.guest_agent.0";
    qemu.args(["-device", port]);
    qemu
}

/// Puts the files that a node gets from the machine where it finds them.
fn bring_along(directory: &Path) -> Result<()> {
    let built = c_build::build()?;
    let programs = c_build::programs()?;
    fs::create_dir_all(directory.join("lib64"))?;
    for name in [
        "stasis-runtime",
        "stasis",
        "containerd-shim-stasis-v2",
        "on-node",
    ] {
        let program = programs.join(name);
        fs::copy(&program, directory.join(name))
            .with_context(|| format!("{}: build the workspace first", program.display()))?;
    }
    fs::copy(c_build::plugin()?, directory.join("libstasis_memory.so"))?;
    fs::write(directory.join("stasis-recover.service"), UNIT)?;
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        fs::copy(
            built.join("lib64").join(name),
            directory.join("lib64").join(name),
        )?;
    }
    // As systemd-tmpfiles wants them, but for the kind.
    let nodes = c_build::NODES
        .iter()
        .map(|(path, _, major, minor)| format!("{path} 0666 root root - {major}:{minor}\n"));
    fs::write(directory.join("nodes"), nodes.collect::<String>())?;
    let workload = built.join("bin/memcheck");
    Image::new(Image::DEFAULT_NAME)?
        .program(&workload)?
        .write(&directory.join("image.tar"))
}
