use std::fs;

use proptest::prelude::*;
use stasis_gpu::cuda::GpuUuid;

use super::*;

fn manifest() -> Manifest {
    let uuid = "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".parse().unwrap();
    let mut manifest = Manifest::new("c1", "2026-11-21T06:00:00Z".into(), "580.159.04".into());
    manifest.gpus = vec![Gpu {
        uuid,
        name: "NVIDIA H200".into(),
        memory_bytes: 150 << 30,
    }];
    manifest.processes = vec![CudaProcess {
        pid: 1,
        name: "counter".into(),
        gpus: vec![GpuUse {
            uuid,
            memory_bytes: 512 << 20,
        }],
    }];
    manifest
}

fn read_text(text: &[u8]) -> Result<Option<Manifest>, ManifestError> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(FILE_NAME), text).unwrap();
    Manifest::read(directory.path())
}

#[test]
fn it_reads_what_it_writes_and_only_root_may_read_it() {
    let directory = tempfile::tempdir().unwrap();
    manifest().write(directory.path()).unwrap();
    manifest().write(directory.path()).unwrap();
    assert_eq!(Manifest::read(directory.path()).unwrap(), Some(manifest()));
    let files: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "nothing staged is left: {files:?}");
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(directory.path().join(FILE_NAME))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn every_truncation_is_refused() {
    let text = serde_json::to_vec(&manifest()).unwrap();
    for length in 0..text.len() {
        let error = read_text(&text[..length]).unwrap_err();
        assert!(
            matches!(error, ManifestError::Malformed { .. }),
            "{length}: {error}"
        );
    }
}

#[test]
fn another_version_is_refused_by_name_even_with_other_fields() {
    let refusal = |found: u32| {
        let text = format!(r#"{{"version": {found}, "other": []}}"#);
        let error = read_text(text.as_bytes()).unwrap_err();
        assert!(matches!(error, ManifestError::Version { .. }), "{error}");
        error.to_string()
    };
    let earlier = "stasis.json version 4 was written by an earlier stasis; this one reads 7: \
                   make a new checkpoint";
    assert!(refusal(4).ends_with(earlier), "{}", refusal(4));
    let later = "stasis.json version 8 was written by a later stasis; this one reads 7: \
                 restore with that one";
    assert!(refusal(8).ends_with(later), "{}", refusal(8));
}

#[test]
fn the_machine_may_be_missing_and_is_compared() {
    let mut manifest = manifest();
    let text = manifest.to_text().unwrap();
    assert_eq!(read_text(&text).unwrap().unwrap().made_on, None);
    let here = MadeOn {
        kernel: "6.18.0".to_owned(),
        criu: Some("4.2".to_owned()),
        cpu: ["aes", "avx2"].map(str::to_owned).into(),
    };
    assert!(here.lacking(&here.cpu).is_empty());
    assert_eq!(here.lacking(&BTreeSet::new()).len(), here.cpu.len());
    manifest.made_on = Some(here);
    let text = manifest.to_text().unwrap();
    assert_eq!(read_text(&text).unwrap(), Some(manifest));
}

fn is_no_file_of_ours(error: &ManifestError) -> bool {
    let invalid = std::io::ErrorKind::InvalidData;
    matches!(error, ManifestError::Io { source, .. } if source.kind() == invalid)
}

#[test]
fn what_is_too_large_is_refused() {
    let text = vec![b' '; usize::try_from(MAX_BYTES).unwrap() + 1];
    let error = read_text(&text).unwrap_err();
    assert!(is_no_file_of_ours(&error), "{error}");
}

#[test]
fn a_link_and_a_directory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    let error = Manifest::read(directory.path()).unwrap_err();
    assert!(is_no_file_of_ours(&error), "{error}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = Manifest::read(directory.path()).unwrap_err();
    assert!(is_no_file_of_ours(&error), "{error}");
}

#[test]
fn impossible_contents_are_refused() {
    let change = |change: fn(&mut Manifest)| {
        let mut manifest = manifest();
        change(&mut manifest);
        read_text(&serde_json::to_vec(&manifest).unwrap())
    };
    assert!(change(|_| {}).is_ok());
    assert!(change(|manifest| manifest.processes[0].pid = 0).is_err());
    assert!(change(|manifest| manifest.gpus.clear()).is_err());
    assert!(
        change(|manifest| {
            manifest.files = Some(vec![ImageFile {
                name: "../core-1.img".to_owned(),
                bytes: 1,
                blake3: None,
            }]);
        })
        .is_err()
    );
    assert!(
        change(|manifest| {
            let again = manifest.processes[0].clone();
            manifest.processes.push(again);
        })
        .is_err()
    );
    let lists: [fn(&mut Manifest); 4] = [
        |manifest| manifest.gpus.push(manifest.gpus[0].clone()),
        |manifest| {
            let again = manifest.processes[0].gpus[0].clone();
            manifest.processes[0].gpus.push(again);
        },
        |manifest| {
            let gpus = (0..=MAX_GPUS).map(|number| {
                let mut bytes = [9; 16];
                bytes[..8].copy_from_slice(&number.to_ne_bytes());
                let uuid = stasis_gpu::cuda::GpuUuid::from_bytes(bytes);
                Gpu {
                    uuid,
                    ..manifest.gpus[0].clone()
                }
            });
            let gpus: Vec<_> = gpus.collect();
            manifest.gpus.extend(gpus);
        },
        |manifest| {
            let phase = Phase {
                name: String::new(),
                seconds: 0.0,
                bytes: None,
                gib_per_second: None,
            };
            manifest.phases = vec![phase; MAX_PHASES + 1];
        },
    ];
    for change_list in lists {
        assert!(change(change_list).is_err());
    }
}

#[test]
fn an_image_with_bulk_memory_only_lists_no_process() {
    let mut manifest = manifest();
    manifest.processes.clear();
    manifest.memory = Some(StoredMemory {
        image_id: ImageId::new(7),
        packs_in: PacksIn::Directory,
    });
    let read = read_text(&serde_json::to_vec(&manifest).unwrap());
    let read = read.unwrap().unwrap();
    assert_eq!(read, manifest);
    assert!(!read.has_gpu_state());
}

#[test]
fn the_gpus_that_no_process_is_on_are_not_used() {
    let mut manifest = manifest();
    let other = Gpu {
        uuid: stasis_gpu::cuda::GpuUuid::from_bytes([7; 16]),
        ..manifest.gpus[0].clone()
    };
    manifest.gpus.insert(0, other);
    assert_eq!(manifest.used_gpus(), manifest.gpus[1..]);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = read_text(&text);
    }
}

/// A manifest of this many processes on each of eight GPUs.
fn crowd(processes: i32) -> Manifest {
    let gpus = (1..=8).map(|number| Gpu {
        uuid: GpuUuid::from_bytes([number; 16]),
        name: "NVIDIA H200".into(),
        memory_bytes: 150 << 30,
    });
    Manifest {
        gpus: gpus.collect(),
        processes: crate::fixtures::on_eight_gpus(processes),
        ..manifest()
    }
}

#[test]
fn thousands_of_processes_on_eight_gpus_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    crowd(5_000).write(directory.path()).unwrap();
    assert_eq!(
        Manifest::read(directory.path()).unwrap(),
        Some(crowd(5_000))
    );
    let most = i32::try_from(MAX_PROCESSES).unwrap();
    crowd(most).write(directory.path()).unwrap();
    Manifest::read(directory.path()).unwrap();
}

#[test]
fn what_would_not_be_read_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    manifest().write(directory.path()).unwrap();
    let mut unlisted = manifest();
    unlisted.gpus.clear();
    let mut twice = manifest();
    twice.processes.extend(manifest().processes);
    let mut long = manifest();
    long.container = "c".repeat(97 << 20);
    for wrong in [unlisted, twice, long, crowd(25_000)] {
        let error = wrong.write(directory.path()).unwrap_err();
        assert!(matches!(error, ManifestError::Unreadable { .. }), "{error}");
        let kept = Manifest::read(directory.path()).unwrap();
        assert_eq!(kept, Some(manifest()), "the earlier one is gone");
    }
}

#[test]
fn an_image_without_gpu_state_lists_its_files_once_it_has_them() {
    let mut manifest = Manifest::new("c1", String::new(), String::new());
    for files in [None, Some(Vec::new())] {
        manifest.files = files;
        let read = read_text(&manifest.to_text().unwrap()).unwrap();
        assert_eq!(read.as_ref(), Some(&manifest));
    }
    assert!(!manifest.has_gpu_state());
}
