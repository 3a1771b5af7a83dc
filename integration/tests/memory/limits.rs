//! GPU contents in memory of their processes: they count against the container's limit and need
//! room on the host. Contents in our files (`from_files.rs`) need only the host's room. The limits
//! are a real memory controller's; on this stand-in a GPU's memory is charged to its process, too.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::host::{Cgroups, HostKind};

const MIB: u64 = 1 << 20;
pub(crate) const LIMIT: u64 = 128 * MIB;
pub(crate) const BY_DRIVER: &str = "gpu_checkpoint.path = \"driver\"\n";

/// Has the driver alone copy, and gives a container of [`LIMIT`] the room for it.
pub(crate) fn driver_alone(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    allow(stasis, memory, 4 * LIMIT)?;
    stasis.set("runc", BY_DRIVER)
}

/// Gives a running container another limit, as engines do.
pub(crate) fn allow(stasis: &StasisHost, memory: &Bundle<'_>, bytes: u64) -> Result<()> {
    let (program, bytes, id) = (&stasis.low_level, &bytes.to_string(), &memory.id);
    let update = [program, "--root", ROOT, "update", "--memory", bytes];
    let update = [&update[..], &["--memory-swap", bytes, id]].concat();
    stasis.run(&update)?;
    Ok(())
}

#[test]
fn what_has_no_room_is_refused_with_figures() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = limited(&stasis)?;
    stasis.set("runc", BY_DRIVER)?;
    let message = memory.checkpoint_fails("limit", &[])?;
    assert!(
        message.contains("allows 128 MiB")
            && message.contains("podman update --memory")
            && message.contains("nothing was changed"),
        "{message}"
    );
    assert!(!memory.image_path("limit").exists());
    driver_alone(&stasis, &memory)?;

    with_available(&stasis, 100, || {
        let message = memory.checkpoint_fails("host", &[])?;
        assert!(
            message.contains("the host has 100 MiB available")
                && message.contains("nothing was changed"),
            "{message}"
        );
        Ok(())
    })?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.checkpoint("good", &[])?;
    restores_without_room_are_refused(&stasis, &memory)?;
    memory.restore("good")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
    memory.delete()
}

/// Contents in host memory already need no more of it, and no higher limit.
#[test]
fn a_suspended_container_needs_no_room() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = limited(&stasis)?;
    driver_alone(&stasis, &memory)?;
    let toggle = [CUDA_CHECKPOINT, "--toggle", "--container", "memory"];
    let toggle = [&toggle[..], &["--root", ROOT]].concat();
    stasis.run(&toggle)?;
    allow(&stasis, &memory, LIMIT)?;
    with_available(&stasis, 200, || {
        memory.checkpoint("suspended", &["--leave-running"])
    })?;
    stasis.run(&toggle)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.delete()
}

fn restores_without_room_are_refused(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    memory.limit_memory(LIMIT / 4)?;
    let spec = memory.spec()?;
    let message = memory.restore_fails("good")?;
    assert!(
        message.contains("limit of the new container") && message.contains("nothing was changed"),
        "{message}"
    );
    assert_eq!(memory.spec()?, spec);
    memory.limit_memory(LIMIT)?;
    with_available(stasis, 100, || {
        let message = memory.restore_fails("good")?;
        assert_contains(&message, &["the host has 100 MiB available"]);
        Ok(())
    })
}

/// A limit of a pod that has no room refuses as well.
#[test]
fn limits_above_the_container_refuse() -> Result<()> {
    let kind = HostKind::trixie()?;
    let pod = match kind.cgroups {
        Cgroups::Hybrid => "/sys/fs/cgroup/memory/memory-pod/memory.limit_in_bytes",
        Cgroups::V2 => "/sys/fs/cgroup/memory-pod/memory.max",
    };
    let stasis = StasisHost::with_containerd(kind)?;
    stasis.set("runc", BY_DRIVER)?;
    let memory = below_a_pod(&stasis)?;
    let allow = |bytes: u64| stasis.write(pod, &bytes.to_string());
    let refused = |message: String| -> Result<()> {
        for part in [
            pod,
            "allows 128 MiB",
            "[memory-limit]",
            "nothing was changed",
        ] {
            assert!(message.contains(part), "{part} is missing in {message}");
        }
        let now = fs::read_to_string(stasis.path(pod))?;
        assert_eq!(now.trim(), LIMIT.to_string());
        Ok(())
    };
    allow(LIMIT)?;
    refused(memory.checkpoint_fails("refused", &[])?)?;
    assert!(!memory.image_path("refused").exists());
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    allow(4 * LIMIT)?;
    memory.checkpoint("good", &[])?;
    allow(LIMIT)?;
    let spec = memory.spec()?;
    refused(memory.restore_fails("good")?)?;
    assert_eq!(memory.spec()?, spec);
    allow(4 * LIMIT)?;
    memory.restore("good")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
    assert_eq!(memory.spec()?, spec);
    memory.delete()?;
    stasis.run(&[
        "sh",
        "-c",
        "find /sys/fs/cgroup -depth -name memory-pod -exec rmdir {} +",
    ])?;
    Ok(())
}

/// Has the host report `mib` MiB of available memory during `work`.
pub(crate) fn with_available(
    stasis: &StasisHost,
    mib: u64,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let figures = format!("MemTotal: 400000 kB\nMemAvailable: {} kB\n", mib << 10);
    stasis.write("/run/meminfo", &figures)?;
    stasis.run(&["mount", "--bind", "/run/meminfo", "/proc/meminfo"])?;
    let result = work();
    stasis.run(&["umount", "/proc/meminfo"])?;
    result
}

/// Starts the same container in a cgroup of its own below a pod's.
fn below_a_pod(stasis: &StasisHost) -> Result<Bundle<'_>> {
    let memory = made(stasis)?;
    memory.limit_memory(4 * LIMIT)?;
    memory.change(|spec| spec["linux"]["cgroupsPath"] = json!("/memory-pod/memory"))?;
    started(memory)
}

/// Starts a container with 48 MiB on the GPU, 16 MiB beside it, and a limit of 128 MiB.
pub(crate) fn limited(stasis: &StasisHost) -> Result<Bundle<'_>> {
    started(made(stasis)?)
}

fn made(stasis: &StasisHost) -> Result<Bundle<'_>> {
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "48", "10000"])?;
    memory.limit_memory(LIMIT)?;
    Ok(memory)
}

fn started(memory: Bundle<'_>) -> Result<Bundle<'_>> {
    memory.comes_up(10000, "ok 0")?;
    Ok(memory)
}

pub(crate) fn limit_file(stasis: &StasisHost, bundle: &Bundle<'_>) -> Result<PathBuf> {
    let cgroups = stasis.run_for_text(&["cat", &format!("/proc/{}/cgroup", bundle.pid()?)])?;
    let path = cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        match controllers {
            "memory" => Some(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")),
            "" => Some(format!("/sys/fs/cgroup{path}/memory.max")),
            _ => None,
        }
    });
    Ok(stasis.path(path.context("no memory cgroup")?))
}
