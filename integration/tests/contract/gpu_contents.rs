//! The driver's handling of GPU contents in a checkpoint: they go into one new mapping, made and
//! filled by libcuda's calls through slots that can be patched.

use std::fs;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use stasis_gpu::cuda::{CudaError, CudaState};
use stasis_integration::host::c_build;
use stasis_integration::needs;

use crate::by_pid::ByPid;
use crate::caller::inventory;
use crate::slots::jump_slot;
use crate::workload::Workload;
use crate::{bring_back, driver, lock, put_away};

const MIB: u64 = 1 << 20;
const DATA: u32 = 64;
/// The size of a context to the stand-in's NVML; none of it has to be saved.
const STANDIN_CONTEXT: u64 = 64 * MIB;

/// One area of /proc/PID/smaps.
struct Area {
    range: Range<u64>,
    permissions: String,
    /// The path of a file, or the kernel's name; none if anonymous.
    name: Option<String>,
    resident: u64,
}

fn areas(pid: i32) -> Result<Vec<Area>> {
    let mut areas: Vec<Area> = Vec::new();
    for line in fs::read_to_string(format!("/proc/{pid}/smaps"))?.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().context("an empty line")?;
        if let Some((start, end)) = first.split_once('-') {
            areas.push(Area {
                range: u64::from_str_radix(start, 16)?..u64::from_str_radix(end, 16)?,
                permissions: words.next().context("no permissions")?.to_owned(),
                name: words.nth(3).map(str::to_owned),
                resident: 0,
            });
        } else if first == "Rss:" {
            let area = areas.last_mut().context("a size of no area")?;
            area.resident = words.next().context("no size")?.parse::<u64>()? << 10;
        }
    }
    Ok(areas)
}

/// Returns the bytes of the area that no earlier area had; the kernel joins adjacent areas.
fn new_bytes(area: &Area, before: &[Area]) -> u64 {
    let Range { start, end } = area.range;
    let overlaps = before.iter().map(|old| {
        let shared = start.max(old.range.start)..end.min(old.range.end);
        shared.end.saturating_sub(shared.start)
    });
    end - start - overlaps.sum::<u64>()
}

/// Returns the new private anonymous area of at least `bytes`, all of it populated.
fn holder<'a>(areas: &'a [Area], before: &[Area], bytes: u64) -> Option<&'a Area> {
    areas.iter().find(|area| {
        area.name.is_none()
            && area.permissions == "rw-p"
            && new_bytes(area, before) >= bytes
            && area.resident >= bytes
    })
}

/// Returns the bytes that a checkpoint has to save: all that NVML reports for the process.
fn to_save(pid: i32) -> Result<u64> {
    let uses = inventory()?.uses(pid);
    let bytes: Option<u64> = uses.iter().map(|used| used.memory_bytes).sum();
    let bytes = bytes.context("NVML does not say how much memory the process uses")?;
    let context = if c_build::has_gpu() {
        0
    } else {
        STANDIN_CONTEXT
    };
    ensure!(
        bytes >= u64::from(DATA) * MIB + context,
        "NVML says {bytes}"
    );
    Ok(bytes - context)
}

#[test]
fn go_into_one_private_mapping_that_is_populated() -> Result<()> {
    let memcheck = Workload::memcheck(DATA)?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    lock(pid)?;
    let (bytes, before) = (to_save(pid)?, areas(pid)?);
    driver().checkpoint(pid)?;
    let after = areas(pid)?;
    let found = holder(&after, &before, bytes);
    let range = found.context("no new mapping holds them")?.range.clone();
    println!("{bytes} bytes of GPU memory, mapped {range:x?}");
    bring_back(pid)?;
    let restored = areas(pid)?;
    assert!(holder(&restored, &before, bytes).is_none(), "still mapped");
    assert_eq!(memcheck.ask()?, "ok 1");
    Ok(())
}

#[test]
fn are_moved_by_calls_through_slots_in_writable_memory() -> Result<()> {
    let memcheck = Workload::memcheck(1)?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    // One cycle first: after it, slots that the driver makes read-only are read-only.
    put_away(pid)?;
    bring_back(pid)?;
    let areas = areas(pid)?;
    let of_libcuda = |area: &&Area| {
        let name = area.name.as_deref();
        name.is_some_and(|name| name.contains("/libcuda.so"))
    };
    let first = areas.iter().find(of_libcuda);
    let first = first.context("libcuda is not mapped")?;
    let path = first.name.as_deref().context("libcuda has no path")?;
    let library = fs::read(format!("/proc/{pid}/root{path}"))?;
    for function in ["mmap", "memcpy", "munmap"] {
        let slot = jump_slot(&library, function)?;
        let slot = first.range.start + slot.with_context(|| format!("no slot of {function}"))?;
        let area = areas.iter().find(|area| area.range.contains(&slot));
        let area = area.with_context(|| format!("the slot of {function} is not mapped"))?;
        assert!(area.permissions.starts_with("rw"), "{function}: read-only");
        println!("{function}: slot {slot:#x} in {:x?}", area.range);
    }
    Ok(())
}

/// Only the stand-in is known to need no other memory of the process.
#[test]
fn without_room_for_them_the_process_stays_locked_and_can_go_on() -> Result<()> {
    needs!(StandIn);
    let memcheck = Workload::memcheck(DATA)?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    lock(pid)?;
    let sizes = areas(pid)?
        .into_iter()
        .map(|area| area.range.end - area.range.start);
    let mapped: u64 = sizes.sum();
    limit_addresses(pid, &(mapped + 16 * MIB).to_string())?;
    let refused = driver().checkpoint(pid);
    assert_eq!(refused.map_err(CudaError::code), Err(2));
    assert_eq!(driver().state(pid)?, CudaState::Locked);
    driver().unlock(pid)?;
    assert_eq!(memcheck.ask()?, "ok 1");
    limit_addresses(pid, "unlimited")?;
    put_away(pid)?;
    bring_back(pid)?;
    assert_eq!(memcheck.ask()?, "ok 2");
    Ok(())
}

fn limit_addresses(pid: i32, bytes: &str) -> Result<()> {
    let (pid, limit) = (pid.to_string(), format!("--as={bytes}:unlimited"));
    let status = std::process::Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status()?;
    ensure!(status.success(), "prlimit {limit} fails");
    Ok(())
}
