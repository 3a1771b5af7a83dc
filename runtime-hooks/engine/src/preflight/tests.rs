use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::nvml::{GpuFacts, ListedUse, Persistence};

use super::*;
use crate::preflight::open_files::{How, OpenFile};

fn own() -> ProcessRef {
    let pid = i32::try_from(std::process::id()).unwrap();
    ProcessRef::open(pid).unwrap().unwrap()
}

/// This process on a GPU in this mode, as a client of MPS or not.
fn inventory(mig: Mig, mps_clients: Vec<i32>) -> Inventory {
    let uuid = GpuUuid::from_bytes([7; 16]);
    let facts = GpuFacts {
        index: 0,
        minor: 0,
        persistence: Persistence::On,
        mig,
        mps_clients,
        numa_node: None,
    };
    let gpu = ListedUse {
        uuid,
        memory_bytes: None,
    };
    Inventory {
        facts: [(uuid, facts)].into(),
        processes: [(own().pid(), vec![gpu])].into(),
        ..Inventory::default()
    }
}

fn kinds(state: Option<CudaState>, inventory: &Inventory) -> Vec<BlockerKind> {
    let members: ProcessStates = state.map(|state| (own(), state)).into_iter().collect();
    let found = find(&ContainerFacts {
        snapshot: &Snapshot::take(&own(), &[own().pid()].into()).unwrap(),
        members: &members,
        inventory,
        sharing: Sharing::Guessed(PeerAccess::Unknown),
        asked: None,
    });
    found.unwrap().iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_process_on_a_whole_gpu_has_nothing_in_its_way() {
    let inventory = inventory(Mig::Disabled, Vec::new());
    for state in [
        None,
        Some(CudaState::Running),
        Some(CudaState::Locked),
        Some(CudaState::Checkpointed),
    ] {
        assert_eq!(kinds(state, &inventory), []);
    }
}

#[test]
fn what_nvml_and_the_driver_tell_counts_for_cuda_processes() {
    let shared = inventory(Mig::Enabled, vec![own().pid()]);
    let running = kinds(Some(CudaState::Running), &shared);
    assert_eq!(running, [BlockerKind::Mps, BlockerKind::Mig]);
    assert_eq!(kinds(None, &shared), []);
    let whole = inventory(Mig::NotSupported, Vec::new());
    for lost in [CudaState::Failed, CudaState::Unknown(4)] {
        assert_eq!(kinds(Some(lost), &whole), [BlockerKind::FailedState]);
    }
}

#[test]
fn a_gpu_that_nobody_keeps_initialised_is_in_the_way_of_its_last_users() {
    let mut inventory = inventory(Mig::Disabled, Vec::new());
    let uuid = GpuUuid::from_bytes([7; 16]);
    let set = |inventory: &mut Inventory, mode| {
        inventory.facts.get_mut(&uuid).unwrap().persistence = mode;
    };
    set(&mut inventory, Persistence::Off);
    for state in [CudaState::Running, CudaState::Locked] {
        assert_eq!(kinds(Some(state), &inventory), [BlockerKind::Persistence]);
    }
    assert_eq!(kinds(Some(CudaState::Checkpointed), &inventory), []);
    assert_eq!(kinds(None, &inventory), []);
    let other = vec![ListedUse {
        uuid,
        memory_bytes: None,
    }];
    inventory.processes.insert(1, other);
    assert_eq!(kinds(Some(CudaState::Running), &inventory), []);
    inventory.processes.remove(&1);
    set(&mut inventory, Persistence::NotSupported);
    assert_eq!(kinds(Some(CudaState::Running), &inventory), []);
}

fn holds(paths: &[&str], libcuda: bool) -> OpenFiles {
    let files = paths.iter().map(|path| OpenFile {
        path: (*path).to_owned(),
        how: How::Mapping,
    });
    OpenFiles {
        files: files.collect(),
        libcuda,
        ..OpenFiles::default()
    }
}

#[test]
fn a_capability_of_a_slice_is_evidence_and_those_of_nvml_are_none() {
    let inventory = inventory(Mig::Disabled, Vec::new());
    let mig = |paths: &[&str]| mig(&inventory, &own(), &holds(paths, true));
    assert_eq!(mig(&CAPABILITIES_OF_ALL), None);
    let slice = mig(&[CAPABILITIES_OF_ALL[0], "/dev/nvidia-caps/nvidia-cap12"]);
    assert!(slice.is_some_and(|evidence| evidence.contains("nvidia-cap12")));
}

#[test]
fn a_forked_child_with_its_parents_devices_is_no_monitor() {
    let devices = ["/dev/nvidiactl"];
    assert!(nvidia_device(&holds(&devices, false)).is_some());
    assert_eq!(nvidia_device(&holds(&devices, true)), None);
    assert_eq!(nvidia_device(&holds(&[], false)), None);
}

#[test]
fn mps_leaves_its_files_where_the_variable_says() {
    let inventory = inventory(Mig::Disabled, Vec::new());
    let mps = |paths: &[&str]| mps(&inventory, &own(), &holds(paths, true), "/run/mps/");
    assert!(mps(&["/run/mps/control"]).is_some());
    assert_eq!(mps(&["/run/mps-other/control"]), None);
    assert_eq!(mps_directory(&own()).unwrap(), "/tmp/nvidia-mps/");
}
