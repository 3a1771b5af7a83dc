//! Imported GPU memory of another process is given up, and mapped again after a restore, while both
//! processes are locked.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use stasis_gpu::cuda::GpuMap;
use stasis_injection::imports::{
    GpuAddress, Import, Members, Visited, drop_imports, export, identify, import, rehearse,
};
use stasis_injection::survey::{
    Allocation, Kind, Removed, VisitError, VisitRecord, ask, prepare, remove,
};
use stasis_integration::needs;
use stasis_linux::ProcessRef;

use crate::by_pid::ByPid;
use crate::sharing::members;
use crate::workload::Workload;
use crate::{driver, lock};

const MIB: u64 = 1 << 20;

#[test]
fn an_import_is_given_up_and_comes_back_with_its_owner() -> Result<()> {
    needs!(TwoGpus);
    for (options, references) in [(&[][..], 1), (&["released"], 0)] {
        let sharing = Workload::sharing(8, options)?;
        assert_eq!(sharing.ask()?, "101 101");
        for counts in ["102 102", "103 103"] {
            let [owner, importer] = locked(&sharing)?;
            let found = pair(&owner, &importer, 8 * MIB);
            let (place, of) = found.with_context(|| format!("{options:?} before {counts}"))?;
            let kept = given_up(&importer, &place)?;
            assert_eq!(kept.references, references, "{options:?}");
            let [owner, importer] = through_host_memory([owner, importer])?;
            let files = export(&owner.visited(), &[of.address])?;
            map_again(&importer, &[kept], &files)?;
            let again = pair(&owner, &importer, 8 * MIB);
            let again = again.with_context(|| format!("{options:?} again before {counts}"))?;
            assert_eq!(again.1.address, of.address);
            // Programs keep it.
            assert_eq!(again.0.handle, place.handle);
            for member in [owner, importer] {
                let pid = member.goes()?;
                ByPid::unlock(driver(), pid)?;
            }
            assert_eq!(sharing.ask()?, counts, "{options:?}");
        }
    }
    Ok(())
}

#[test]
fn a_rehearsal_leaves_mappings_and_descriptors_as_they_were() -> Result<()> {
    needs!(TwoGpus);
    let sharing = Workload::sharing(8, &[])?;
    assert_eq!(sharing.ask()?, "101 101");
    let [owner, importer] = locked(&sharing)?;
    let (place, of) = pair(&owner, &importer, 8 * MIB)?;
    let before = [owner.counts()?, importer.counts()?];
    let files = export(&owner.visited(), &[of.address])?;
    let rehearsed = [(as_import(&place), files[0].as_fd())];
    rehearse(&importer.visited(), &rehearsed)?;
    assert_eq!([owner.counts()?, importer.counts()?], before);
    for member in [owner, importer] {
        ByPid::unlock(driver(), member.goes()?)?;
    }
    assert_eq!(sharing.ask()?, "102 102");
    Ok(())
}

/// The reason why a process with such memory is refused.
#[test]
fn memory_of_512_mib_cannot_be_shared_again_after_a_restore() -> Result<()> {
    needs!(TwoGpus);
    let sharing = Workload::sharing(512, &[])?;
    assert_eq!(sharing.ask()?, "101 101");
    let [owner, importer] = locked(&sharing)?;
    let (place, of) = pair(&owner, &importer, 512 * MIB)?;
    given_up(&importer, &place)?;
    let [owner, importer] = through_host_memory([owner, importer])?;
    let exported = export(&owner.visited(), &[of.address]);
    let Err(VisitError::Call { call, result, .. }) = exported else {
        anyhow::bail!("{exported:?}");
    };
    assert_eq!((call, result), ("cuMemExportToShareableHandle", 1));
    owner.goes()?;
    importer.goes()?;
    Ok(())
}

/// A process with our code in it.
struct Member {
    process: ProcessRef,
    record: VisitRecord,
}

impl Member {
    /// Injects the code into a locked process.
    fn of(pid: i32) -> Result<Self> {
        let process = ProcessRef::open(pid)?.context("it has ended")?;
        let record = prepare(&process, ByPid::restore_thread(driver(), pid)?)?;
        Ok(Self { process, record })
    }

    fn visited(&self) -> Visited<'_> {
        Visited {
            process: &self.process,
            record: &self.record,
        }
    }

    /// Removes our code.
    fn goes(self) -> Result<i32> {
        let removed = remove(&self.process, &self.record)?;
        ensure!(matches!(removed, Removed::Gone), "{removed:?}");
        Ok(self.process.pid())
    }

    /// Returns the allocations of virtual memory management, on a device.
    fn memory(&self, is_own: impl Fn(&Allocation) -> bool) -> Result<Vec<Allocation>> {
        let all = ask(&self.process, &self.record)?.allocations;
        let is_virtual = |each: &Allocation| each.kind == Kind::Virtual as u64;
        let all = all.into_iter();
        Ok(all
            .filter(|each| is_virtual(each) && is_own(each))
            .collect())
    }

    /// Counts the process's mappings and descriptors.
    fn counts(&self) -> Result<(usize, usize)> {
        let pid = self.process.pid();
        let mappings = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?;
        Ok((mappings.lines().count(), descriptors.count()))
    }
}

/// Locks the owner and the importer.
fn locked(sharing: &Workload) -> Result<[Member; 2]> {
    let [owner, importer] = members(sharing)?;
    for pid in [owner, importer] {
        lock(pid)?;
    }
    Ok([Member::of(owner)?, Member::of(importer)?])
}

/// Returns the import of this many bytes, and the memory that it maps.
fn pair(owner: &Member, importer: &Member, bytes: u64) -> Result<(Allocation, Allocation)> {
    let own = owner.memory(|each| each.handle_types != 0)?;
    let others = importer.memory(|each| each.handle_types == 0)?;
    let asked = [
        (
            owner.visited(),
            Members {
                own: own.iter().map(place).collect(),
                ..Members::default()
            },
        ),
        (
            importer.visited(),
            Members {
                candidates: others.iter().map(place).collect(),
                ..Members::default()
            },
        ),
    ];
    let found = identify(&asked)?.remove(1);
    let mut found = others.iter().zip(found);
    let of = |(import, of): (&Allocation, Option<(usize, usize)>)| {
        let (0, index) = of.filter(|_| import.bytes == bytes)? else {
            return None;
        };
        Some((*import, *own.get(index)?))
    };
    let found = found.find_map(of);
    found.with_context(|| format!("nobody's: {own:?} and {others:?}"))
}

fn place(allocation: &Allocation) -> GpuAddress {
    GpuAddress {
        address: allocation.address,
        device: allocation.access.trailing_zeros().into(),
    }
}

fn as_import(allocation: &Allocation) -> Import {
    Import {
        address: allocation.address,
        bytes: allocation.bytes,
        access: allocation.access,
        references: 1,
        handle: allocation.handle,
    }
}

/// Gives an import up. Returns it as it is to be mapped again.
fn given_up(importer: &Member, allocation: &Allocation) -> Result<Import> {
    let import = as_import(allocation);
    let mut counted = Vec::new();
    for _ in 0..2 {
        drop_imports(&importer.visited(), &[import], &mut counted)?;
    }
    let [references, 0] = counted[..] else {
        anyhow::bail!("not one answer, and then none: {counted:?}");
    };
    Ok(Import {
        references,
        ..import
    })
}

/// Maps the imports twice: the second time, existing mappings stay.
fn map_again(importer: &Member, imports: &[Import], files: &[OwnedFd]) -> Result<()> {
    let files = files.iter().map(AsFd::as_fd);
    let imports: Vec<_> = imports.iter().copied().zip(files).collect();
    import(&importer.visited(), &imports)?;
    import(&importer.visited(), &imports)?;
    Ok(())
}

/// Moves both to host memory and back; they are LOCKED again, with our code.
fn through_host_memory(members: [Member; 2]) -> Result<[Member; 2]> {
    let [owner, importer] = members;
    let pids = [owner.goes()?, importer.goes()?];
    for pid in pids {
        driver().checkpoint(pid)?;
    }
    for pid in pids {
        driver().restore(pid, &GpuMap::identity())?;
    }
    Ok([Member::of(pids[0])?, Member::of(pids[1])?])
}
