//! Driver calls and looks at the GPUs from a process of their own, which can be killed and which
//! has faults and a machine of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::by_pid::ByPid;
use anyhow::{Context, Result, ensure};
use stasis_config::Settings;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::{CudaError, CudaState, GpuMap};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::c_build;

use crate::{LIBCUDA, NVML, blockers, driver, library};

/// The variable with the caller's order, as "CALL PID [MAP]".
const ORDER: &str = "STASIS_CONTRACT_CALL";

/// The timeout of a lock: short, so that a lock that must fail does so soon.
const TIMEOUT: Duration = Duration::from_millis(200);

#[test]
#[ignore = "the process that other tests start"]
fn caller() -> Result<()> {
    let order = std::env::var(ORDER).context("this is for other tests to start")?;
    let (call, rest) = order
        .split_once(' ')
        .context("an order is CALL PID [MAP]")?;
    let (pid, map) = rest.split_once(' ').unwrap_or((rest, ""));
    let pid = pid.parse()?;
    println!("\ncalling");
    if call == "look" {
        println!("answer {:?}", inventory()?);
        return Ok(());
    }
    if call == "where" {
        println!("answer {}", places(&inventory()?, pid));
        return Ok(());
    }
    if call == "blockers" {
        println!("answer {}", blockers::names(pid)?);
        return Ok(());
    }
    let driver = driver();
    let answer = match call {
        "lock" => driver.lock(pid, TIMEOUT),
        "checkpoint" => driver.checkpoint(pid),
        "restore" => driver.restore(pid, &gpu_map(map)?),
        _ => driver.unlock(pid),
    };
    println!("answer {}", answer.map_or_else(CudaError::code, |()| 0));
    Ok(())
}

/// Reads the inventory from the machine's own NVML, or from the stand-in's.
pub(crate) fn inventory() -> Result<Inventory> {
    let mut settings = Settings::default();
    settings.driver.nvml = library(NVML);
    Ok(Inventory::read(&settings)?)
}

/// Returns the GPUs that a process is on, by their places in the inventory.
fn places(inventory: &Inventory, pid: i32) -> String {
    let mut found = String::new();
    for gpu in inventory.uses(pid) {
        let place = inventory
            .gpus
            .iter()
            .position(|known| known.uuid == gpu.uuid);
        found += &place.map_or_else(|| "? ".to_owned(), |place| format!("{place} "));
    }
    found.trim().to_owned()
}

/// Parses a map such as "0>1,1>0", by the places of GPUs in the inventory. Further GPUs stay.
fn gpu_map(text: &str) -> Result<GpuMap> {
    let inventory = inventory()?;
    let uuid = |place: &str| -> Result<_> {
        let gpu = inventory.gpus.get(place.parse::<usize>()?);
        Ok(gpu.context("there are not so many GPUs")?.uuid)
    };
    let mut pairs = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (old, new) = pair.split_once('>').context("a pair is OLD>NEW")?;
        pairs.push((uuid(old)?, uuid(new)?));
    }
    if !pairs.is_empty() {
        pairs.extend(
            inventory
                .gpus
                .iter()
                .skip(2)
                .map(|gpu| (gpu.uuid, gpu.uuid)),
        );
    }
    Ok(GpuMap::new(pairs))
}

/// Restores a process with a map, such as "0>1,1>0", on a machine of this description. Returns the
/// driver's code.
pub(crate) fn restore_onto(machine: &str, pid: i32, map: &str) -> Result<i32> {
    Ok(answer(start(machine, &format!("restore {pid} {map}"))?)?.parse()?)
}

/// Returns the GPUs that a process is on, such as "0 1".
pub(crate) fn gpus_of(machine: &str, pid: i32) -> Result<String> {
    answer(start(machine, &format!("where {pid}"))?)
}

/// Returns the blockers of a checkpoint of a process, on a machine of this description.
pub(crate) fn blockers_of(machine: &str, pid: i32) -> Result<String> {
    answer(start(machine, &format!("blockers {pid}"))?)
}

/// Returns the inventory of a machine of this description, as text.
pub(crate) fn look(machine: &str) -> Result<String> {
    answer(start(machine, "look 0")?)
}

fn answer(mut child: Child) -> Result<String> {
    let answer = line_after(&mut child, "answer ")?;
    child.wait()?;
    Ok(answer)
}

/// Makes one call while the stand-in has the given faults. Returns the driver's code.
pub(crate) fn call_with_fault(faults: &str, call: &str, pid: i32) -> Result<i32> {
    Ok(answer(start(faults, &format!("{call} {pid}"))?)?.parse()?)
}

/// Kills the caller of a checkpoint in the middle of it. Returns the driver's state after that.
pub(crate) fn kill_during_checkpoint(
    pid: i32,
    state: impl Fn() -> Result<CudaState, CudaError>,
) -> Result<CudaState> {
    let mut head_start = Duration::from_millis(100);
    loop {
        let mut child = start("checkpoint * slow:3000 1", &format!("checkpoint {pid}"))?;
        line_after(&mut child, "calling")?;
        if !c_build::has_gpu() {
            until_called(&child)?;
        }
        sleep(head_start);
        child.kill()?;
        let status = child.wait()?;
        ensure!(!status.success(), "the call ended before it was killed");
        let state = state()?;
        // Still LOCKED: the caller was killed before it had called.
        if state != CudaState::Locked || head_start > Duration::from_secs(5) {
            return Ok(state);
        }
        head_start *= 2;
    }
}

/// Waits until the stand-in has read the order for a call. The caller is then in that call, which
/// has just begun, however late this machine schedules it.
fn until_called(caller: &Child) -> Result<()> {
    let faults = format!("/proc/{}/root/run/stasis-standin/faults", caller.id());
    wait_until_clear(|| {
        let orders = fs::read_to_string(&faults)?;
        Ok((!orders.ends_with(" 0\n")).then(|| format!("its orders: {orders}")))
    })
}

/// Starts [`caller`]; on the stand-in with a /run of its own that holds the faults.
fn start(faults: &str, order: &str) -> Result<Child> {
    let own = std::env::current_exe()?;
    let mut command = if c_build::has_gpu() {
        Command::new(own)
    } else {
        let script = format!(
            "mount -t tmpfs tmpfs /run && mkdir /run/stasis-standin && \
             echo '{faults}' >/run/stasis-standin/faults && exec \"$0\" \"$@\""
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        unshare.arg(own);
        unshare
    };
    // Without these it would compile the stand-in for itself.
    for (name, file) in [LIBCUDA, NVML] {
        if let Some(path) = library((name, file)) {
            command.env(name, path);
        }
    }
    command
        .args(["--exact", "caller::caller", "--ignored", "--nocapture"])
        .env(ORDER, order)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a caller")
}

fn line_after(child: &mut Child, start: &str) -> Result<String> {
    let output = child.stdout.as_mut().context("the caller has no output")?;
    for line in BufReader::new(output).lines() {
        if let Some(rest) = line?.strip_prefix(start) {
            return Ok(rest.to_owned());
        }
    }
    anyhow::bail!("the caller ended without saying {start:?}")
}
