//! GPU contents of a suspended container: in a file in memory, not charged to the container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use stasis_injection::{devices_of, unreadable};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::needs;
use stasis_linux::ProcessRef;

use crate::limits::{BY_DRIVER, LIMIT, allow, driver_alone, limit_file, limited};

/// The name of a mapping of such a file.
const FILE: &str = "/stasis-gpu-contents (deleted)";
const MIB: u64 = 1 << 20;
/// The kernel's own use, far less than contents.
const GROWTH: u64 = 8 * MIB;
pub(crate) const TOGGLE: [&str; 5] = [
    CUDA_CHECKPOINT,
    "--toggle",
    "--container",
    "memory",
    "--root",
];

#[test]
fn its_limit_and_its_charge_stay_as_they_are() -> Result<()> {
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = limited(stasis)?;
    let file = limit_file(stasis, &memory)?;
    let before = charged(&file)?;
    toggle(stasis)?;
    ensure!(in_file(stasis, &memory)? >= 48 * MIB, "they are elsewhere");
    ensure!(charged(&file)? < before + 16 * MIB, "they are charged");
    assert_eq!(fs::read_to_string(&file)?.trim(), LIMIT.to_string());
    toggle(stasis)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    ensure!(in_file(stasis, &memory)? == 0, "the file is still mapped");
    ensure!(peak(&file)? <= LIMIT);
    memory.delete()
}

#[test]
fn nothing_grows_in_a_hundred_rounds() -> Result<()> {
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = limited(stasis)?;
    let limit = limit_file(stasis, &memory)?;
    let round = || [(); 2].into_iter().try_for_each(|()| toggle(stasis));
    round()?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    let (before, image) = (seen(stasis, &memory)?, image_of(stasis, &memory)?);
    let (charged_before, ours_before) = (charged(&limit)?, charged_to_us(stasis, &limit)?);
    for number in 2..=101 {
        round()?;
        assert_eq!(stasis.ask(10000)?, Some(format!("ok {number}")));
        assert_eq!(image_of(stasis, &memory)?, image, "in round {number}");
    }
    assert_eq!(seen(stasis, &memory)?, before);
    let (now, ours) = (charged(&limit)?, charged_to_us(stasis, &limit)?);
    ensure!(
        now < charged_before + GROWTH,
        "{charged_before} has become {now}"
    );
    ensure!(
        ours < ours_before + GROWTH,
        "ours: {ours_before} has become {ours}"
    );
    memory.delete()
}

/// Returns all mappings of the process, without inode numbers, as the driver makes nameless files
/// anew; and digests of the driver library's writable memory, its slots among it.
fn image_of(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<String> {
    let script = r#"cd /proc/$0; awk '{ print $1, $2, $3, $6 }' maps
        grep 'rw-p.*/libcuda[.]so' maps | while IFS='- ' read -r start end rest; do
            skip=$((0x$start / 4096)) count=$((0x$end / 4096 - 0x$start / 4096))
            dd if=mem bs=4096 skip=$skip count=$count status=none | sha256sum
        done"#;
    let pid = memory.pid()?.to_string();
    let image = stasis.run_for_text(&["bash", "-c", script, &pid])?;
    ensure!(
        image.lines().any(|line| line.ends_with("  -")),
        "no slots: {image}"
    );
    Ok(image)
}

/// Returns the use of the cgroup in which files are made, beside the one of a limit.
fn charged_to_us(stasis: &StasisHost, limit: &Path) -> Result<u64> {
    let root = match limit.file_name().is_some_and(|name| name == "memory.max") {
        true => "/sys/fs/cgroup/stasis",
        false => "/sys/fs/cgroup/memory/stasis",
    };
    let name = limit.file_name().unwrap_or_default();
    charged(&stasis.path(root).join(name))
}

/// CRIU cannot dump a mapping of a file without a name: contents are stored from there, or, if the
/// driver is to copy alone, made ordinary memory of the process.
#[test]
fn a_checkpoint_has_them_too() -> Result<()> {
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = limited(stasis)?;
    many_threads_copy(stasis, &memory)?;
    toggle(stasis)?;
    memory.checkpoint("goes-on", &["--leave-running"])?;
    ensure!(in_file(stasis, &memory)? >= 48 * MIB, "they are elsewhere");
    driver_alone(stasis, &memory)?;
    memory.checkpoint("by-criu", &["--leave-running"])?;
    ensure!(in_file(stasis, &memory)? == 0, "they are still in the file");
    stasis.set("runc", "")?;
    toggle(stasis)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 3"));
    allow(stasis, &memory, LIMIT)?;
    toggle(stasis)?;
    memory.checkpoint("ends", &[])?;
    memory.restore("ends")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 4"));
    memory.delete()?;
    memory.restore("goes-on")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 3"));
    memory.delete()
}

fn many_threads_copy(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    let copied = |operation: &str| -> Result<()> {
        let bytes = stasis.operation(operation)?["shared_out_bytes"].as_u64();
        ensure!(bytes >= Some(48 * MIB), "{operation}: {bytes:?}");
        Ok(())
    };
    memory.checkpoint("copied", &[])?;
    copied("checkpoint")?;
    memory.restore("copied")?;
    copied("restore")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.pause()?;
    memory.checkpoint("paused", &["--leave-running"])?;
    memory.resume()?;
    copied("resume")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
    driver_alone(stasis, memory)?;
    memory.checkpoint("alone", &["--leave-running"])?;
    ensure!(copied("checkpoint").is_err());
    stasis.set("runc", "")?;
    allow(stasis, memory, LIMIT)
}

#[test]
fn the_settings_can_leave_it_to_the_driver() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = limited(stasis)?;
    driver_alone(stasis, &memory)?;
    toggle(stasis)?;
    assert_eq!(in_file(stasis, &memory)?, 0);
    // Contents in a file are taken from there all the same.
    toggle(stasis)?;
    stasis.set("runc", "")?;
    toggle(stasis)?;
    ensure!(in_file(stasis, &memory)? > 0);
    driver_alone(stasis, &memory)?;
    toggle(stasis)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.delete()
}

/// A thread that asks for the state of its GPU meanwhile reads these addresses.
#[test]
fn where_devices_were_can_be_read() -> Result<()> {
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let memory = limited(stasis)?;
    let pid = stasis.host.outside(&memory.pid()?.to_string())?;
    let process = &ProcessRef::open(pid.as_raw())?.context("it has ended")?;
    let devices = devices_of(process)?;
    ensure!(!devices.is_empty());
    allow(stasis, &memory, 4 * LIMIT)?;
    for settings in ["", BY_DRIVER] {
        stasis.set("runc", settings)?;
        toggle(stasis)?;
        assert_eq!(unreadable(process, &devices)?, [], "{settings}");
        toggle(stasis)?;
        assert_eq!(devices_of(process)?, devices, "{settings}");
    }
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.checkpoint("image", &[])?;
    memory.restore("image")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
    memory.delete()
}

fn toggle(stasis: &StasisHost) -> Result<()> {
    let said = stasis.run_for_text(&[&TOGGLE[..], &[ROOT]].concat())?;
    assert_eq!(said, "");
    Ok(())
}

/// Returns a command that suspends a container of [`ROOT`], or resumes it.
pub(crate) fn toggled(stasis: &StasisHost, id: &str) -> Command {
    let mut command = stasis.command(CUDA_CHECKPOINT);
    command.args(["--toggle", "--container", id, "--root", ROOT]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Returns the bytes of the container that are in a file of ours.
pub(crate) fn in_file(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<u64> {
    let pid = memory.pid()?.to_string();
    let maps = stasis.run_for_text(&["cat", &format!("/proc/{pid}/maps")])?;
    let mut bytes = 0;
    for line in maps.lines().filter(|line| line.ends_with(FILE)) {
        let range = line.split(' ').next().unwrap_or_default();
        let (start, end) = range.split_once('-').unwrap_or_default();
        bytes += u64::from_str_radix(end, 16)? - u64::from_str_radix(start, 16)?;
    }
    Ok(bytes)
}

/// Returns mappings, tasks, descriptors and children of the process, once no process of ours works
/// on it: no operation waits for the process that held its contents.
pub(crate) fn seen(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<String> {
    stasis.processes_at_rest()?;
    let script = "cd /proc/$0; cut -d' ' -f1,2 maps; ls task fd; cat task/*/children";
    let pid = memory.pid()?.to_string();
    stasis.run_for_text(&["sh", "-c", script, &pid])
}

/// Waits until the killed processes, by names with `|` between them, are dead: their locks are held
/// until the kernel has closed their files.
pub(crate) fn until_dead(stasis: &StasisHost, names: &str) -> Result<()> {
    wait_until_clear(|| {
        let alive = ["pgrep", "-x", "-r", "S,R,D", names];
        Ok(stasis.run_for_text(&alive).ok())
    })
}

/// Returns the use of a limit's cgroup, in bytes.
pub(crate) fn charged(limit: &Path) -> Result<u64> {
    number(usage_of(limit).0)
}

/// Returns the highest use so far.
pub(crate) fn peak(limit: &Path) -> Result<u64> {
    number(usage_of(limit).1)
}

fn number(file: PathBuf) -> Result<u64> {
    Ok(fs::read_to_string(file)?.trim().parse()?)
}

/// Returns the files with the use of a limit's cgroup, and with its highest use.
fn usage_of(limit: &Path) -> (PathBuf, PathBuf) {
    match limit.file_name().is_some_and(|name| name == "memory.max") {
        true => ["memory.current", "memory.peak"],
        false => ["memory.usage_in_bytes", "memory.max_usage_in_bytes"],
    }
    .map(|name| limit.with_file_name(name))
    .into()
}
