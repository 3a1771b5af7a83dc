//! CRIU can dump processes that use the stand-in exactly when their GPU state is checkpointed.

use std::time::Duration;

use crate::by_pid::ByPid;
use anyhow::Result;
use stasis_gpu::cuda::{CudaDriver, CudaState, GpuMap};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::c_build;
use stasis_integration::host::{Cgroups, Host, Suite};
use stasis_integration::needs;

const LIBRARIES: &str = "/usr/local/nvidia/lib64";
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn criu_dumps_only_what_is_off_the_gpu() -> Result<()> {
    needs!(StandIn);
    let (host, driver) = host_with("counter")?;
    let inside = start(&host, "counter 10000")?;
    let pid = host.outside(&inside)?.as_raw();
    assert_eq!(ask(&host)?, "101");
    assert!(dump(&host, &inside).is_err(), "dumped while RUNNING");
    assert_eq!(ask(&host)?, "102");
    driver.lock(pid, PATIENCE)?;
    assert!(dump(&host, &inside).is_err(), "dumped while LOCKED");
    driver.checkpoint(pid)?;
    dump(&host, &inside)?;

    // CRIU restores the process with the same pid.
    let dumped = host.path(format!("/proc/{inside}"));
    wait_until_clear(|| Ok(dumped.exists().then(|| "the dumped process".to_owned())))?;
    restore(&host)?;
    let pid = host.outside(&inside)?.as_raw();
    assert_eq!(driver.state(pid), Ok(CudaState::Checkpointed));
    driver.restore(pid, &GpuMap::identity())?;
    driver.unlock(pid)?;
    assert_eq!(ask(&host)?, "103");
    Ok(())
}

/// Virtual memory is in files while it is on the GPU, and CRIU must not see those files.
#[test]
fn criu_dumps_virtual_memory_that_is_off_the_gpu() -> Result<()> {
    needs!(StandIn);
    let (host, driver) = host_with("sharing")?;
    let inside = start(&host, "sharing 10000 2 own")?;
    assert_eq!(ask(&host)?, "101 201");
    let members = || children(&host, &inside);
    for pid in members()? {
        driver.lock(pid, PATIENCE)?;
        driver.checkpoint(pid)?;
    }
    dump(&host, &inside)?;
    let dumped = host.path(format!("/proc/{inside}"));
    wait_until_clear(|| Ok(dumped.exists().then(|| "the dumped process".to_owned())))?;
    restore(&host)?;
    for pid in members()? {
        driver.restore(pid, &GpuMap::identity())?;
        driver.unlock(pid)?;
    }
    assert_eq!(ask(&host)?, "102 202");
    Ok(())
}

/// Starts a host with the stand-in and this workload. Returns the host and its driver.
fn host_with(workload: &str) -> Result<(Host, CudaDriver)> {
    let host = Host::start(Suite::Trixie, Cgroups::V2)?;
    let built = c_build::build()?;
    host.install_dir(&built.join("lib64"), LIBRARIES)?;
    let program = format!("/usr/local/bin/{workload}");
    host.install(&built.join("bin").join(workload), &program)?;
    for (path, kind, major, minor) in c_build::NODES {
        host.mknod(path, kind, major, minor)?;
    }
    let driver = CudaDriver::open(Some(&built.join("lib64/libcuda.so.1")))?;
    Ok((host, driver))
}

/// Returns the children of a process of the host, as pids outside the host.
fn children(host: &Host, inside: &str) -> Result<Vec<i32>> {
    let list = format!("/proc/{inside}/task/{inside}/children");
    let pids = host.run_for_text(&["cat", &list])?;
    let outside = pids.split_whitespace().map(|pid| host.outside(pid));
    outside.map(|pid| Ok(pid?.as_raw())).collect()
}

/// Starts a workload at port 10000 that outlives the shell. Returns its pid in the host.
/// Descriptors from outside the host, for which CRIU cannot find a mount, are closed first.
fn start(host: &Host, workload: &str) -> Result<String> {
    let script = format!(
        "for descriptor in $(ls /proc/$$/fd); do
            [ $descriptor -le 2 ] || eval \"exec $descriptor<&-\"
        done
        LD_LIBRARY_PATH={LIBRARIES} setsid {workload} </dev/null >/dev/null 2>&1 &
        pid=$!
        until ss -lun | grep -q ':10000 '; do sleep 0.05; done
        echo $pid"
    );
    host.run_for_text(&["timeout", "30", "bash", "-c", &script])
}

/// Dumps the process; the error has the end of CRIU's log.
fn dump(host: &Host, pid: &str) -> Result<()> {
    let script = "mkdir -p /tmp/dump && criu dump -t $0 -D /tmp/dump -o dump.log || { tail -n 5 /tmp/dump/dump.log; exit 1; }";
    host.run(&["bash", "-c", script, pid])?;
    Ok(())
}

/// Restores the process; the error has the end of CRIU's log.
fn restore(host: &Host) -> Result<()> {
    let script = "criu restore -d -D /tmp/dump -o restore.log || { tail -n 20 /tmp/dump/restore.log; exit 1; }";
    host.run(&["bash", "-c", script])?;
    Ok(())
}

fn ask(host: &Host) -> Result<String> {
    let script = "exec 3<>/dev/udp/127.0.0.1/10000; echo next >&3; timeout 30 head -n 1 <&3";
    host.run_for_text(&["bash", "-c", script])
}
