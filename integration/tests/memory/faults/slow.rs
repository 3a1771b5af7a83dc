//! A container with a small share of the processor: what it does for the plugin takes long.

use std::fs;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::gettid;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

use super::RUNS_ON;

/// Of each of [`BUSY`] other processes the container gets a hundredth of the processor.
const SHARES: &str = "10";
/// As much as any other process has.
const ALL_SHARES: &str = "1024";
const BUSY: usize = 3;
const ROUNDS: u32 = 5;
/// Pages: what the kernel frees in less time than a turn of the scheduler.
const FEW: u64 = 512;

on_hosts!(criu_is_killed_while_pages_are_freed: sid_hybrid);

/// CRIU is killed while the kernel still frees pages for the plugin, in a process that then has to
/// wait for its turn: pages that are freed after CRIU's end come back as well.
fn criu_is_killed_while_pages_are_freed(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    let _containerd = stasis.containerd()?;
    stasis.set("runc", "bulk_memory.heaps = true\n")?;
    let command = "exec /bin/heaps 10000 192 random nohuge";
    let holder = MemoryContainer::start(&stasis, "heaps", command, 10000)?;
    let task = holder.bundle.pid()?;
    let give = |shares| {
        let file = "/sys/fs/cgroup/cpu/heaps/cpu.shares";
        stasis.host.write(file, shares)
    };
    let pin = ["taskset", "-p", "-c", "0", &task.to_string()];
    stasis.host.run(&pin)?;
    for _ in 0..ROUNDS {
        give(SHARES)?;
        let busy: Vec<_> = (0..BUSY).map(|_| Busy::start()).collect::<Result<_>>()?;
        let dump = holder.bundle.begin_checkpoint("killed", &[])?;
        kill_criu_when_pages_are_freed(&stasis, task)?;
        let output = dump.wait_with_output()?;
        drop(busy);
        // Beside other tests it would not answer in time.
        give(ALL_SHARES)?;
        assert_contains(&String::from_utf8_lossy(&output.stderr), &[RUNS_ON]);
        holder.goes_on()?;
        holder.nothing_left_of_dump("killed")?;
    }
    holder.end()
}

/// Sets when this thread gets a processor: at -20 before all others. So do programs that it starts.
fn renice(to: &str) -> Result<()> {
    let thread = gettid().to_string();
    let renice = Command::new("renice")
        .args(["-n", to, "-p", &thread])
        .output();
    ensure!(renice?.status.success(), "renice fails");
    Ok(())
}

fn kill_criu_when_pages_are_freed(stasis: &StasisHost, task: i64) -> Result<()> {
    // What is waited for lasts some milliseconds.
    renice("-20")?;
    let is_traced = || -> Result<bool> { Ok(tracer(stasis, task)? != "0") };
    wait_until_clear(|| Ok((!is_traced()?).then(|| "it is not traced".to_owned())))?;
    let criu = stasis.host.outside(&tracer(stasis, task)?)?;
    let before = resident(stasis, task)?;
    while resident(stasis, task)? + FEW > before {
        ensure!(is_traced()?, "the dump ended before");
    }
    kill(criu, Signal::SIGKILL)?;
    renice("0")
}

/// In pages.
fn resident(stasis: &StasisHost, task: i64) -> Result<u64> {
    let sizes = fs::read_to_string(stasis.host.path(format!("/proc/{task}/statm")))?;
    let resident = sizes.split(' ').nth(1).context("no resident pages")?;
    Ok(resident.parse()?)
}

fn tracer(stasis: &StasisHost, task: i64) -> Result<String> {
    let status = fs::read_to_string(stasis.host.path(format!("/proc/{task}/status")))?;
    let mut lines = status.lines();
    let tracer = lines.find_map(|line| line.strip_prefix("TracerPid:"));
    Ok(tracer.context("no TracerPid")?.trim().to_owned())
}

/// Loops on the first processor. It ends when this is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
