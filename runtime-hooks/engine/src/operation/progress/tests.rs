use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use stasis_linux::cgroup::FreezerState;

use super::*;
use crate::fake_driver::FakeDriver;
use crate::operation::Intent;

fn begin(state: &Path) -> Operation {
    Operation::begin(state, Path::new("/run/runc"), "c1").unwrap()
}

fn progress(operation: &Operation) -> Progress<'_> {
    let began = "2026-11-21T10:00:00Z".to_owned();
    Progress::new(operation, Verb::Checkpoint, began, Duration::from_secs(3))
}

fn intent() -> Intent {
    Intent {
        members: Vec::new(),
        freezer: FreezerState::Thawed,
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into())
        .collect();
    names.sort();
    names
}

/// Waits until the sampler has told what `wanted` says; a test that fails waits for ever.
fn until(directory: &Path, wanted: impl Fn(&UnderWay) -> bool) -> UnderWay {
    loop {
        match UnderWay::read(directory).unwrap() {
            Some(told) if wanted(&told) => return told,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[test]
fn each_phase_is_written_while_it_lasts() {
    let state = tempfile::tempdir().unwrap();
    let operation = begin(state.path());
    let directory = operation.directory();
    let mut progress = progress(&operation);
    assert_eq!(UnderWay::read(directory).unwrap(), None);
    for phase in ["lock", "freeze"] {
        let told = progress.during(phase, None, || UnderWay::read(directory).unwrap().unwrap());
        assert_eq!(told.phase, phase);
        assert_eq!(told.operation, "checkpoint");
        assert_eq!(told.began, "2026-11-21T10:00:00Z");
        assert!(told.phase_since >= 3.0, "{told:?}");
        assert_eq!((told.bytes_done, told.bytes_total), (None, None));
        assert_eq!(u32::try_from(told.pid), Ok(std::process::id()));
        assert!(told.is_alive().unwrap());
    }
    let mode = fs::metadata(directory.join(FILE_NAME))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_bytes_of_a_phase_are_sampled_repeatedly() {
    let state = tempfile::tempdir().unwrap();
    let operation = begin(state.path());
    let directory = operation.directory();
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let own = [ProcessRef::open(pid).unwrap().unwrap()];
    let driver = FakeDriver::default();
    let mut estimate = ProgressEstimate::gpu_checkpoint(1 << 30, &own, &driver);
    let mut progress = progress(&operation);
    let memory = progress.during("gpu checkpoint", Some(&mut estimate), || {
        let first = until(directory, |told| told.bytes_total.is_some());
        assert_eq!(first.bytes_total, Some(1 << 30));
        assert_eq!(first.phase, "gpu checkpoint");
        let (mut memory, mut told) = (Vec::new(), first);
        // Other tests of this process give memory back meanwhile.
        while told.bytes_done <= Some(32 << 20) {
            memory.push(vec![1_u8; 96 << 20]);
            let before = told.bytes_done;
            told = until(directory, |told| told.bytes_done != before);
        }
        memory
    });
    drop(memory);
    progress.during("unlock", None, || {
        let told = UnderWay::read(directory).unwrap().unwrap();
        assert_eq!((told.bytes_done, told.bytes_total), (None, None));
    });
}

#[test]
fn an_operation_that_is_over_leaves_no_file_but_its_intent() {
    let state = tempfile::tempdir().unwrap();
    let operation = begin(state.path());
    operation.record(&intent()).unwrap();
    let mut progress = progress(&operation);
    progress.during("dump", None, || ());
    drop(progress);
    let directory = operation.directory().to_owned();
    drop(operation);
    assert_eq!(
        files(&directory),
        [PathBuf::from("intent.json"), "lock".into()]
    );
}

#[test]
fn work_that_panics_ends_its_sampler() {
    let state = tempfile::tempdir().unwrap();
    let operation = begin(state.path());
    let driver = FakeDriver::default();
    let mut estimate = ProgressEstimate::gpu_restore(0, &[], &driver);
    let mut progress = progress(&operation);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        progress.during("gpu restore", Some(&mut estimate), || {
            std::panic::resume_unwind(Box::new("on purpose"))
        })
    }));
    assert!(panicked.is_err());
}

#[test]
fn nothing_comes_back_after_the_directory_is_gone() {
    let state = tempfile::tempdir().unwrap();
    let operation = begin(state.path());
    let mut progress = progress(&operation);
    let done = progress.during("roll back", None, || {
        operation.clear();
        7
    });
    assert_eq!(done, 7);
    // Nor does it matter that nothing can be written.
    progress.during("unlock", None, || ());
    drop(progress);
    assert!(!operation.directory().exists());
}

#[test]
fn the_file_of_the_next_operation_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let first = begin(state.path());
    let mut before = progress(&first);
    before.during("unlock", None, || ());
    first.clear();
    let second = begin(state.path());
    let mut after = progress(&second);
    after.during("lock", None, || ());
    drop(before);
    let told = UnderWay::read(second.directory()).unwrap().unwrap();
    assert_eq!(told.phase, "lock");
}

#[test]
fn the_next_operation_removes_the_file_of_a_killed_one() {
    let state = tempfile::tempdir().unwrap();
    let operation = begin(state.path());
    operation.record(&intent()).unwrap();
    let mut progress = progress(&operation);
    progress.during("dump", None, || ());
    // As if killed: nothing is cleaned up, but the lock is free.
    std::mem::forget(progress);
    let directory = operation.directory().to_owned();
    drop(operation);
    let told = UnderWay::read(&directory).unwrap().unwrap();
    assert_eq!(told.phase, "dump");
    let _next = begin(state.path());
    assert_eq!(UnderWay::read(&directory).unwrap(), None);
}

#[test]
fn another_process_with_the_pid_is_not_the_operation() {
    let told = UnderWay {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        start_time: 1,
        ..UnderWay::default()
    };
    assert!(!told.is_alive().unwrap());
}

#[test]
fn files_of_other_versions_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let text = r#"{"operation":"restore","pid":7,"began":"x","phase":"p","phase_since":1.5,"new":{"a":[1]}}"#;
    fs::write(directory.path().join(FILE_NAME), text).unwrap();
    let told = UnderWay::read(directory.path()).unwrap().unwrap();
    assert_eq!((told.pid, told.bytes_total), (7, None));
    fs::write(directory.path().join(FILE_NAME), "{").unwrap();
    assert!(UnderWay::read(directory.path()).is_err());
}
