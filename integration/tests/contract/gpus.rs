//! Several GPUs: NVML's facts about them, the view of a process, and the effect of a restore.

use std::path::Path;

use crate::by_pid::ByPid;
use anyhow::Result;
use stasis_gpu::cuda::nvml::Mig;
use stasis_gpu::cuda::{CudaError, CudaState, GpuMap};
use stasis_integration::host::c_build;
use stasis_integration::needs;

use crate::caller::{gpus_of, inventory, look, restore_onto};
use crate::nodes::{descriptors, mappings};
use crate::workload::Workload;
use crate::{bring_back, driver, put_away};

/// The stand-in's machine; a real one is left as it is.
pub(crate) const TWO: &str = "gpus 2";

#[test]
fn each_gpu_has_a_node_and_is_not_cut_up() -> Result<()> {
    let inventory = inventory()?;
    assert!(!inventory.gpus.is_empty());
    for gpu in &inventory.gpus {
        let facts = &inventory.facts[&gpu.uuid];
        assert_ne!(facts.mig, Mig::Enabled);
        assert!(facts.mps_clients.is_empty());
        let node = format!("/dev/nvidia{}", facts.minor);
        assert!(!c_build::has_gpu() || Path::new(&node).exists());
    }
    Ok(())
}

#[test]
fn a_process_is_moved_to_another_gpu_and_back() -> Result<()> {
    needs!(TwoGpus);
    let counter = Workload::counter_on(2, &["0"], &[])?;
    assert_eq!(counter.ask()?, "101");
    let pid = counter.pid();
    assert_eq!(gpus_of(TWO, pid)?, "0");
    for (turn, now) in [(1, "1"), (2, "0")] {
        put_away(pid)?;
        assert_eq!(gpus_of(TWO, pid)?, "");
        assert_eq!(restore_onto(TWO, pid, "0>1,1>0")?, 0);
        driver().unlock(pid)?;
        assert_eq!(gpus_of(TWO, pid)?, now);
        // Without a map it returns to where it was last, not to where it began.
        put_away(pid)?;
        bring_back(pid)?;
        assert_eq!(gpus_of(TWO, pid)?, now);
        assert_eq!(counter.ask()?, format!("{}", 101 + turn));
    }
    Ok(())
}

#[test]
fn a_process_with_memory_on_two_gpus_has_them_swapped() -> Result<()> {
    needs!(TwoGpus);
    let counter = Workload::counter_on(2, &["0", "1"], &[])?;
    assert_eq!(counter.ask()?, "101 201");
    let pid = counter.pid();
    assert_eq!(gpus_of(TWO, pid)?, "0 1");
    put_away(pid)?;
    assert_eq!(restore_onto(TWO, pid, "0>1,1>0")?, 0);
    driver().unlock(pid)?;
    assert_eq!(gpus_of(TWO, pid)?, "0 1");
    assert_eq!(counter.ask()?, "102 202");
    Ok(())
}

/// The driver has recorded both GPUs, whatever CUDA_VISIBLE_DEVICES has shown to the process.
#[test]
fn a_map_that_leaves_a_gpu_out_is_refused_and_the_next_one_taken() -> Result<()> {
    needs!(TwoGpus);
    let counter = Workload::counter_on(2, &["0"], &[("CUDA_VISIBLE_DEVICES", "0")])?;
    assert_eq!(counter.ask()?, "101");
    let pid = counter.pid();
    assert!(!descriptors(pid)?.contains(&"/dev/nvidia1".to_owned()));
    put_away(pid)?;
    let refused = CudaError::InvalidValue.code();
    assert_eq!(restore_onto(TWO, pid, "0>1")?, refused);
    assert_eq!(driver().state(pid), Ok(CudaState::Checkpointed));
    assert_eq!(restore_onto(TWO, pid, "0>1,1>0")?, 0);
    driver().unlock(pid)?;
    let held = descriptors(pid)?;
    assert!(held.contains(&"/dev/nvidia1".to_owned()), "{held:?}");
    assert!(!held.contains(&"/dev/nvidia0".to_owned()), "{held:?}");
    assert_eq!(counter.ask()?, "102");
    Ok(())
}

/// A process with managed memory is recognised by this mapping before it is locked.
#[test]
fn managed_memory_is_a_mapping_of_the_uvm_node_above_64_gib() -> Result<()> {
    let high = |pid| -> Result<usize> {
        let mappings = mappings(pid)?;
        let uvm = mappings.iter().filter(|line| line.contains("nvidia-uvm"));
        let starts = uvm.filter_map(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
        Ok(starts.filter(|start| *start >= 64 << 30).count())
    };
    let (plain, managed) = (Workload::memcheck(1)?, Workload::managed()?);
    assert_eq!(
        (plain.ask()?, managed.ask()?),
        ("ok 0".into(), "ok 0".into())
    );
    assert_eq!(high(plain.pid())?, 0);
    assert!(high(managed.pid())? > 0);
    Ok(())
}

/// Machines that exist only by order.
mod of_the_standin {
    use super::*;

    #[test]
    fn the_machine_is_as_it_was_ordered() -> Result<()> {
        needs!(StandIn);
        let machine = "gpus 3\nmemory 2048\nmemory 1024 1\nname 2 NVIDIA H200 NVL\nmig 1\nold 2\n\
                       persistence-off 0\ndriver 570.1";
        let seen = look(machine)?;
        for part in [
            "driver_version: \"570.1\"",
            "GPU-57415349-5300-4000-8000-000000000003, name: \"NVIDIA H200 NVL\", memory_bytes: 2147483648",
            "000000000002, name: \"stasis stand-in GPU\", memory_bytes: 1073741824",
            "minor: 0, persistence: Off, mig: Disabled",
            "minor: 1, persistence: On, mig: Enabled",
            "minor: 2, persistence: NotSupported, mig: NotSupported",
        ] {
            assert!(seen.contains(part), "{part} is missing in {seen}");
        }
        assert!(!seen.contains("minor: 3"), "{seen}");
        Ok(())
    }

    #[test]
    fn a_process_on_mps_is_listed_as_its_client() -> Result<()> {
        needs!(StandIn);
        let counter = Workload::counter()?;
        counter.ask()?;
        let pid = counter.pid().to_string();
        // Processes of other tests may be listed, too.
        let is_client = |machine: &str| -> Result<bool> {
            let seen = look(machine)?;
            let clients = seen.split("mps_clients: [").nth(1).unwrap_or_default();
            let clients = clients.split(']').next().unwrap_or_default();
            Ok(clients.split(", ").any(|client| client == pid))
        };
        assert!(is_client(&format!("mps {}", counter.tag()))?);
        assert!(!is_client("")?);
        Ok(())
    }

    #[test]
    fn a_gpu_whose_node_is_missing_is_refused() -> Result<()> {
        needs!(StandIn);
        let pid = put_away_on_one()?;
        let refused = CudaError::NotSupported.code();
        assert_eq!(restore_onto(TWO, pid.pid(), "0>1")?, refused);
        assert_eq!(driver().state(pid.pid()), Ok(CudaState::Checkpointed));
        assert_eq!(restore_onto(TWO, pid.pid(), "0>0")?, 0);
        Ok(())
    }

    #[test]
    fn a_gpu_that_is_not_there_is_refused() -> Result<()> {
        needs!(StandIn);
        let counter = put_away_on_one()?;
        let pid = counter.pid();
        let gone = inventory()?.gpus[0].uuid;
        let mut other = *gone.as_bytes();
        other[15] += 1;
        let map = GpuMap::new(vec![(gone, stasis_gpu::cuda::GpuUuid::from_bytes(other))]);
        assert_eq!(driver().restore(pid, &map), Err(CudaError::InvalidValue));
        bring_back(pid)?;
        assert_eq!(counter.ask()?, "102");
        Ok(())
    }

    #[test]
    fn the_room_that_counts_is_that_of_the_new_gpu() -> Result<()> {
        needs!(StandIn);
        let counter = Workload::counter_on(2, &["0"], &[])?;
        assert_eq!(counter.ask()?, "101");
        put_away(counter.pid())?;
        let machine = "gpus 2\nmemory 1 0";
        assert_eq!(restore_onto(machine, counter.pid(), "0>1,1>0")?, 0);
        driver().unlock(counter.pid())?;
        put_away(counter.pid())?;
        let refused = CudaError::OutOfMemory.code();
        assert_eq!(restore_onto(machine, counter.pid(), "0>1,1>0")?, refused);
        Ok(())
    }

    /// Checkpoints a counter that sees one GPU.
    fn put_away_on_one() -> Result<Workload> {
        let counter = Workload::counter()?;
        counter.ask()?;
        put_away(counter.pid())?;
        Ok(counter)
    }
}
