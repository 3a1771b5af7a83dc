use std::fs;
use std::path::Path;

use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_gpu::ledger::{Reservation, WaitLimit};
use stasis_linux::cgroup::{Cgroup, FreezerState};

use super::*;
use crate::checkpoint::captured::OnGpu;
use crate::checkpoint::plan::judge::admit_to_host;
use crate::container::host_memory::{HostRoom, NoHostMemory, available};
use crate::image::disk_space::is_in_memory;
use crate::image::manifest::Manifest;
use crate::operation::Intent;

const MIB: u64 = 1 << 20;
const MUCH: u64 = 512 * MIB;
const LITTLE: u64 = 16 * MIB;
const MINIMUM: u64 = 256 * MIB;

/// Processes that hold this many bytes each, all of which are this process.
fn captured(on_gpu: &[u64], in_file_bytes: u64) -> Captured {
    let own = i32::try_from(std::process::id()).unwrap();
    let id = ProcessId::of(&ProcessRef::open(own).unwrap().unwrap());
    let held = |bytes: &u64| OnGpu {
        id,
        bytes: *bytes,
        near: None,
    };
    Captured {
        manifest: Manifest::new("c1", String::new(), String::new()),
        exec: Vec::new(),
        intent: Intent {
            members: Vec::new(),
            freezer: FreezerState::Thawed,
        },
        to_host_bytes: on_gpu.iter().sum::<u64>() + in_file_bytes,
        on_gpu: on_gpu.iter().map(held).collect(),
        in_file_bytes,
    }
}

/// The limits of a cgroup that leaves this many bytes.
fn limits(directory: &Path, left: u64) -> MemoryCgroup {
    let file = |name: &str, text: String| fs::write(directory.join(name), text).unwrap();
    file("memory.max", left.to_string());
    file("memory.current", "0".to_owned());
    file("memory.stat", String::new());
    MemoryCgroup::new(Cgroup::v2(directory.into()))
}

fn facts<'f>(
    settings: &'f Settings,
    limits: &'f MemoryCgroup,
    captured: &'f Captured,
) -> Facts<'f> {
    Facts {
        settings,
        plugin: Ok(()),
        limits,
        captured,
        resumes: Resumes::AtOnce,
        no_file: &|_| None,
    }
}

#[test]
fn where_contents_are_stored_depends_on_who_waits_for_them() {
    let (cgroup, minimum) = (tempfile::tempdir().unwrap(), MINIMUM);
    let (mut settings, limits) = (Settings::default(), limits(cgroup.path(), 1 << 40));
    let both = captured(&[MUCH, LITTLE], 0);
    let staged = GpuContentsRoute::decide(&facts(&settings, &limits, &both));
    assert_eq!(staged, GpuContentsRoute::Staged { minimum });
    assert_eq!(staged.bytes_in_files(&both), MUCH);
    assert_eq!(staged.bytes_in_container(&both), LITTLE);
    let said = staged.by_criu(&both).unwrap();
    assert_eq!(
        (said.bytes, said.cause),
        (LITTLE, Cause::Little { minimum })
    );
    let suspended = captured(&[MUCH], LITTLE);
    let decided = GpuContentsRoute::decide(&facts(&settings, &limits, &suspended));
    assert_eq!(decided, GpuContentsRoute::ToImage { minimum });
    let to_image = GpuContentsRoute::ToImage { minimum };
    let resumes = Resumes::Later;
    let decided = GpuContentsRoute::decide(&Facts {
        resumes,
        ..facts(&settings, &limits, &both)
    });
    assert_eq!(decided, to_image);
    // Contents in memory stay where they are.
    let tmpfs = tempfile::tempdir_in("/dev/shm").unwrap();
    settings.gpu_contents.directory = tmpfs.path().into();
    let decided = GpuContentsRoute::decide(&facts(&settings, &limits, &both));
    assert_eq!(decided, to_image);
}

#[test]
fn criu_dumps_what_cannot_or_need_not_go_into_files() {
    let cgroup = tempfile::tempdir().unwrap();
    let (mut settings, roomy) = (Settings::default(), limits(cgroup.path(), 1 << 40));
    let (both, little) = (captured(&[MUCH, LITTLE], 0), captured(&[LITTLE; 2], 0));
    let because = |facts: &Facts<'_>| match GpuContentsRoute::decide(facts) {
        GpuContentsRoute::ByCriu(cause) => cause.to_string(),
        other => panic!("{other:?}"),
    };
    let why = because(&facts(&settings, &roomy, &little));
    assert!(why.contains("minimum_mib (256)"), "{why}");
    let why = because(&Facts {
        no_file: &|_| Some("it is new".to_owned()),
        ..facts(&settings, &roomy, &both)
    });
    assert!(why.ends_with("has no file for it: it is new"), "{why}");
    let why = because(&Facts {
        plugin: Err(&PluginUnavailable::PageSize(65536)),
        ..facts(&settings, &roomy, &both)
    });
    assert!(why.contains("65536"), "{why}");
    settings.gpu_checkpoint.path = GpuCheckpointPath::Driver;
    let why = because(&facts(&settings, &roomy, &both));
    assert!(why.contains("gpu_checkpoint.path"), "{why}");
}

#[test]
fn without_room_in_the_container_all_goes_into_files() {
    let cgroup = tempfile::tempdir().unwrap();
    let (settings, tight) = (Settings::default(), limits(cgroup.path(), LITTLE));
    let little = captured(&[LITTLE; 2], 0);
    let staged = GpuContentsRoute::decide(&facts(&settings, &tight, &little));
    assert_eq!(staged, GpuContentsRoute::Staged { minimum: 1 });
    assert_eq!(staged.by_criu(&little), None);
}

/// The holder writes the contents into the image while the files that have them still exist.
#[test]
fn an_image_on_a_tmpfs_needs_host_memory_beside_that_of_the_contents() {
    let mib = available().unwrap() / MIB;
    let state_dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = is_in_memory(&state_dir.path().join("not/there/yet"));
    assert!(image && !is_in_memory(Path::new(env!("CARGO_MANIFEST_DIR"))));
    // Once they fit, and twice they do not.
    let captured = captured(&[mib * 2 / 3 * MIB], 0);
    let route = GpuContentsRoute::ToImage { minimum: MINIMUM };
    let admit = |image_in_memory| {
        let reservation = Reservation::new(state_dir.path(), "c1");
        let room = HostRoom(&reservation, WaitLimit::none());
        let limits = limits(state_dir.path(), u64::MAX);
        admit_to_host(&limits, &captured, &route, image_in_memory, room)
    };
    admit(0).unwrap();
    let error = admit(captured.to_host_bytes).unwrap_err();
    let NoHostMemory::Host(short) = error else {
        panic!("{error}")
    };
    let contents = captured.to_host_bytes;
    // 128 MiB for the driver, and 64 MiB beside the one file.
    assert_eq!(
        short.wanted,
        2 * contents + contents / 16 + (128 + 64) * MIB
    );
}
