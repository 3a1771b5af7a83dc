//! What moves GPU contents in a checkpoint: calls that libcuda makes through slots which can be
//! changed. Without room they stay where they are.

use std::fs;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use stasis::cuda::{CudaError, CudaState};
use stasis_integration::needs;

use crate::by_pid::ByPid;
use crate::slots::Library;
use crate::workload::Workload;
use crate::{bring_back, driver, lock, put_away};

const MIB: u64 = 1 << 20;
const DATA: u32 = 64;

/// One area of /proc/PID/maps.
struct Area {
    range: Range<u64>,
    permissions: String,
    /// Of a file, or of the kernel's own; none if anonymous.
    name: Option<String>,
}

fn areas(pid: i32) -> Result<Vec<Area>> {
    let mut areas: Vec<Area> = Vec::new();
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().context("an empty line")?;
        if let Some((start, end)) = first.split_once('-') {
            areas.push(Area {
                range: u64::from_str_radix(start, 16)?..u64::from_str_radix(end, 16)?,
                permissions: words.next().context("no permissions")?.to_owned(),
                name: words.nth(3).map(str::to_owned),
            });
        }
    }
    Ok(areas)
}

#[test]
fn are_moved_by_calls_through_slots_in_writable_memory() -> Result<()> {
    let memcheck = Workload::memcheck(1)?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    // Once through, so that whatever the driver makes read-only is.
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
    let library = Library::parse(fs::read(format!("/proc/{pid}/root{path}"))?)?;
    for function in ["mmap", "memcpy", "munmap"] {
        let slot = library.jump_slot(function)?;
        let slot = first.range.start + slot.with_context(|| format!("no slot of {function}"))?;
        let area = areas.iter().find(|area| area.range.contains(&slot));
        let area = area.with_context(|| format!("the slot of {function} is not mapped"))?;
        assert!(area.permissions.starts_with("rw"), "{function}: read-only");
        println!("{function}: slot {slot:#x} in {:x?}", area.range);
    }
    Ok(())
}

/// Only the stand-in is known to need nothing else of the process.
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
