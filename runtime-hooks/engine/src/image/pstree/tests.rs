use std::fs;

use proptest::prelude::*;

use super::*;
use crate::image::criu_file::COMMON_MAGIC;

/// An entry of a process as CRIU writes it, with more than is read.
#[derive(Message)]
struct WholePstreeEntry {
    #[prost(uint32, required, tag = "1")]
    pid: u32,
    #[prost(uint32, required, tag = "2")]
    ppid: u32,
    #[prost(uint32, required, tag = "3")]
    pgid: u32,
    #[prost(uint32, required, tag = "4")]
    sid: u32,
    #[prost(uint32, repeated, packed = "false", tag = "5")]
    threads: Vec<u32>,
}

fn process(pid: u32) -> WholePstreeEntry {
    WholePstreeEntry {
        pid,
        ppid: 1,
        pgid: 1,
        sid: 1,
        threads: vec![pid, pid + 100],
    }
}

fn file(magic: u32, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [COMMON_MAGIC.to_ne_bytes(), magic.to_ne_bytes()].concat();
    for entry in entries {
        bytes.extend(u32::try_from(entry.len()).unwrap().to_ne_bytes());
        bytes.extend(entry);
    }
    bytes
}

/// An image with these processes, the last of them a zombie.
fn image(pids: &[u32]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let entries: Vec<_> = pids
        .iter()
        .map(|pid| process(*pid).encode_to_vec())
        .collect();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("pstree.img"), file(PSTREE_MAGIC, &entries)).unwrap();
    for pid in pids {
        let task_state = if Some(pid) == pids.last() {
            TASK_DEAD
        } else {
            1
        };
        let task = Some(TaskCoreEntry { task_state });
        let core = CoreEntry { task }.encode_to_vec();
        fs::write(path(&format!("core-{pid}.img")), file(CORE_MAGIC, &[core])).unwrap();
    }
    directory
}

fn cuda(pid: i32) -> CudaProcess {
    CudaProcess {
        pid,
        name: "rank".to_owned(),
        gpus: Vec::new(),
    }
}

#[test]
fn an_image_has_what_was_recorded_or_it_says_what_is_missing() {
    let directory = image(&[1, 7, 9]);
    let verify_in = |recorded: &[i32], exec: &[i32]| {
        let all = |pids: &[i32]| pids.iter().copied().map(cuda).collect::<Vec<_>>();
        verify(directory.path(), &all(recorded), &all(exec))
    };
    verify_in(&[1, 7], &[8]).unwrap();
    verify_in(&[], &[9]).unwrap();
    for missing in [8, 9] {
        let error = verify_in(&[1, missing], &[]).unwrap_err();
        assert!(matches!(error, PstreeError::WithoutProcess { pid, .. } if pid == missing));
    }
    let adopted = verify_in(&[1], &[7]).unwrap_err();
    assert!(matches!(adopted, PstreeError::Adopted { pid: 7, .. }));
}

/// A memory dump in advance has none of these files.
#[test]
fn where_nothing_was_recorded_nothing_is_read() {
    let directory = tempfile::tempdir().unwrap();
    verify(directory.path(), &[], &[]).unwrap();
    let error = verify(directory.path(), &[cuda(1)], &[]).unwrap_err();
    assert!(matches!(error, PstreeError::Io { .. }), "{error}");
}

#[test]
fn a_damaged_file_is_an_error_with_its_name() {
    let directory = image(&[1]);
    let path = directory.path().join("pstree.img");
    let entry = process(1).encode_to_vec();
    let whole = file(PSTREE_MAGIC, std::slice::from_ref(&entry));
    let other = file(CORE_MAGIC, &[entry]);
    for damaged in [&whole[..3], &whole[..9], &whole[..whole.len() - 1], &other] {
        fs::write(&path, damaged).unwrap();
        let error = Pstree::read(directory.path()).unwrap_err();
        assert!(matches!(error, PstreeError::Malformed { .. }), "{error}");
        assert!(error.to_string().contains("pstree.img"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let error = Pstree::read(directory.path()).unwrap_err();
    assert!(matches!(error, PstreeError::Io { .. }), "{error}");
}

proptest! {
    #[test]
    fn no_file_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let magics = file(PSTREE_MAGIC, &[]);
        let _ = parse::<PstreeEntry>(&[magics, bytes.clone()].concat(), PSTREE_MAGIC);
        let _ = parse::<CoreEntry>(&bytes, CORE_MAGIC);
    }
}
