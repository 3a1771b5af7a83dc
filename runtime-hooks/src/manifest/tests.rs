use super::*;
use proptest::prelude::*;

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
            memory_bytes: Some(512 << 20),
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
    Manifest::remove(directory.path()).unwrap();
    Manifest::remove(directory.path()).unwrap();
    assert_eq!(Manifest::read(directory.path()).unwrap(), None);
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
fn another_version_is_refused_even_with_other_fields() {
    let error = read_text(br#"{"version": 2, "new": []}"#).unwrap_err();
    assert!(
        matches!(error, ManifestError::Version { found: 2, .. }),
        "{error}"
    );
}

#[test]
fn what_is_too_large_is_refused() {
    let text = vec![b' '; usize::try_from(MAX_BYTES).unwrap() + 1];
    let error = read_text(&text).unwrap_err();
    assert!(matches!(error, ManifestError::TooLarge { .. }), "{error}");
}

#[test]
fn a_link_and_a_directory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    let error = Manifest::read(directory.path()).unwrap_err();
    assert!(matches!(error, ManifestError::NotAFile { .. }), "{error}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = Manifest::read(directory.path()).unwrap_err();
    assert!(matches!(error, ManifestError::NotAFile { .. }), "{error}");
}

#[test]
fn impossible_contents_are_refused() {
    let change = |change: fn(&mut Manifest)| {
        let mut manifest = manifest();
        change(&mut manifest);
        read_text(&serde_json::to_vec(&manifest).unwrap())
    };
    assert!(change(|_| {}).is_ok());
    assert!(change(|manifest| manifest.processes.clear()).is_err());
    assert!(change(|manifest| manifest.processes[0].pid = 0).is_err());
    assert!(change(|manifest| manifest.gpus.clear()).is_err());
    assert!(
        change(|manifest| {
            let again = manifest.processes[0].clone();
            manifest.processes.push(again);
        })
        .is_err()
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = read_text(&text);
    }
}
