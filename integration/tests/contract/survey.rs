//! The driver's checkpoint thread answers while its process is locked, and lists its allocations.

use crate::by_pid::ByPid;
use anyhow::{Context, Result, ensure};
use stasis_injection::survey::{Allocation, Kind, ProcessGpuMemory, Removed, ask, prepare, remove};
use stasis_integration::needs;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::for_each_mapping;

use crate::sharing::members;
use crate::workload::Workload;
use crate::{bring_back, driver, lock, put_away};

const MIB: u64 = 1 << 20;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: u64 = 1;

#[test]
fn memory_is_found_with_its_size_and_the_process_goes_on() -> Result<()> {
    let memcheck = Workload::memcheck(64)?;
    assert!(memcheck.ask()?.starts_with("ok "));
    for _ in 0..3 {
        let found = look(memcheck.pid())?;
        let large = |each: &&Allocation| each.bytes >= 64 * MIB;
        let large = found.allocations.iter().find(large).context("not found")?;
        assert_eq!(large.kind, Kind::Ordinary as u64, "{large:?}");
        assert_eq!(found.active, 1);
        assert!(memcheck.ask()?.starts_with("ok "));
    }
    put_away(memcheck.pid())?;
    bring_back(memcheck.pid())?;
    assert!(memcheck.ask()?.starts_with("ok "));
    Ok(())
}

/// Before a checkpoint and after it: only the asking thread can notice the difference.
#[test]
fn peer_access_is_known_and_stays_as_it_was() -> Result<()> {
    needs!(TwoGpus);
    for (mib, options, peers) in [
        (1024, &[][..], [0b10, 0]),
        (1024, &["disabled"], [0, 0]),
        (256, &[], [0b10, 0]),
    ] {
        let workload = Workload::peers(mib, options)?;
        assert_eq!(workload.ask()?, "101 201");
        for counts in ["102 202", "103 203"] {
            let found = look(workload.pid())?;
            assert_eq!(found.peers[..2], peers, "{mib} {options:?}");
            assert_eq!(found.active, 0b11);
            assert_eq!(workload.ask()?, counts);
        }
        if peers == [0, 0] || mib == 256 {
            put_away(workload.pid())?;
            bring_back(workload.pid())?;
            assert_eq!(look(workload.pid())?.peers[..2], peers, "restored");
            assert_eq!(workload.ask()?, "104 204");
        }
    }
    Ok(())
}

#[test]
fn an_import_is_memory_of_another_gpu_without_a_handle() -> Result<()> {
    needs!(TwoGpus);
    for options in [&[][..], &["released"]] {
        let sharing = Workload::sharing(8, options)?;
        assert_eq!(sharing.ask()?, "101 101");
        let [owner, importer] = members(&sharing)?;
        let of = |pid| -> Result<Allocation> {
            let found = look(pid)?.allocations;
            let is_it =
                |each: &&Allocation| each.kind == Kind::Virtual as u64 && each.bytes == 8 * MIB;
            Ok(*found
                .iter()
                .find(is_it)
                .with_context(|| format!("{found:?}"))?)
        };
        let (owned, imported) = (of(owner)?, of(importer)?);
        let seen = |each: Allocation| (each.location_type, each.location, each.handle_types);
        assert_eq!((seen(owned), owned.access), ((DEVICE, 0, 1), 0b01));
        assert_eq!((seen(imported), imported.access), ((DEVICE, 0, 0), 0b10));
        assert_eq!(sharing.ask()?, "102 102");
    }
    Ok(())
}

#[test]
fn what_a_legacy_handle_has_opened_is_no_memory_of_its_own() -> Result<()> {
    needs!(TwoGpus);
    let sharing = Workload::sharing(8, &["legacy"])?;
    assert_eq!(sharing.ask()?, "101 101");
    let [owner, importer] = members(&sharing)?;
    let imports = |pid| -> Result<usize> {
        let found = look(pid)?.allocations;
        let is_one = |each: &&Allocation| each.kind == Kind::LegacyImport as u64;
        Ok(found.iter().filter(is_one).count())
    };
    assert_eq!((imports(owner)?, imports(importer)?), (0, 1));
    assert_eq!(sharing.ask()?, "102 102");
    Ok(())
}

/// Surveys a process while it is locked, and unlocks it without any code of ours.
fn look(pid: i32) -> Result<ProcessGpuMemory> {
    let process = ProcessRef::open(pid)?.context("it has ended")?;
    let before = executable(pid)?;
    lock(pid)?;
    let state = ByPid::state(driver(), pid)?;
    let prepared = prepare(&process, ByPid::restore_thread(driver(), pid)?)?;
    let found = ask(&process, &prepared).with_context(|| format!("{state}"));
    let removed = remove(&process, &prepared)?;
    ensure!(matches!(removed, Removed::Gone), "{removed:?}");
    ByPid::unlock(driver(), pid)?;
    assert_eq!(executable(pid)?, before, "code is left");
    found
}

fn executable(pid: i32) -> Result<usize> {
    let mut count = 0;
    for_each_mapping(pid, |mapping| -> std::ops::ControlFlow<()> {
        count += usize::from(mapping.has(b'x'));
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(count)
}
