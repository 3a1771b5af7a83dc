use std::sync::atomic::{AtomicU32, Ordering};

use stasis_gpu::cuda::process_set::initial_state::{ProcessId, SafeState};
use stasis_linux::cgroup::FreezerState;

use super::*;

const ROOT: &str = "/run/runc";

fn begin(state: &Path) -> Result<Operation, OperationError> {
    Operation::begin(state, Path::new(ROOT), "c1")
}

#[test]
fn a_second_operation_is_refused_and_names_the_holder() {
    let state = tempfile::tempdir().unwrap();
    let first = begin(state.path()).unwrap();
    let error = begin(state.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&format!("(process {})", std::process::id()))
    );
    drop(first);
    drop(begin(state.path()).unwrap());
    assert!(!has_directory(state.path(), Path::new(ROOT), "c1"));
}

/// The former holder of the lock removes the directory in which others look for it.
#[test]
fn who_comes_while_another_one_ends_is_alone() {
    let state = tempfile::tempdir().unwrap();
    let inside = AtomicU32::new(0);
    let come_and_go = || {
        for _ in 0..3000 {
            match begin(state.path()) {
                Ok(operation) => {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    assert!(operation.directory().join(lock::NAME).exists());
                    inside.store(0, Ordering::SeqCst);
                    operation.clear();
                }
                Err(OperationError::Busy { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(come_and_go);
        }
    });
}

#[test]
fn a_recovery_is_waited_for_and_an_operation_is_not() {
    let state = tempfile::tempdir().unwrap();
    let holder = || match begin(state.path()) {
        Err(OperationError::Busy { holder }) => holder,
        other => panic!("{other:?}"),
    };
    let operation = begin(state.path()).unwrap();
    assert!(!holder().ends_soon());
    let lock = operation.directory().join(lock::NAME);
    // As if another operation has taken the lock, and not written its name yet.
    fs::write(&lock, "").unwrap();
    assert!(holder().ends_soon());
    // No process has this pid (PID_MAX_LIMIT of the kernel is 4 Mi).
    fs::write(&lock, "5000000").unwrap();
    assert!(holder().ends_soon());
    let directory = operation.directory().to_owned();
    drop(operation);
    let recovery = Operation::begin_recovery(directory).unwrap();
    assert!(holder().ends_soon());
    drop(recovery);
    drop(begin(state.path()).unwrap());
}

#[test]
fn containers_of_other_roots_are_others() {
    let state = tempfile::tempdir().unwrap();
    let _first = begin(state.path()).unwrap();
    Operation::begin(state.path(), Path::new("/run/other"), "c1").unwrap();
}

#[test]
fn a_root_is_the_same_by_all_its_names() {
    let state = tempfile::tempdir().unwrap();
    let machine = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(machine.path()).unwrap().join("run");
    fs::create_dir(&real).unwrap();
    let link = machine.path().join("var-run");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let up = "../".repeat(std::env::current_dir().unwrap().components().count() - 1);
    let relative = PathBuf::from(format!("{up}{}", &real.to_str().unwrap()[1..]));
    // The second one does not exist, as before the first container.
    for below in ["", "runtime-runc/moby"] {
        let first = Operation::begin(state.path(), &real.join(below), "c1").unwrap();
        for other in [
            link.join(below),
            PathBuf::from(format!("{}//", real.join(below).display())),
            relative.join(below),
        ] {
            let second = Operation::begin(state.path(), &other, "c1");
            let is_busy = matches!(second, Err(OperationError::Busy { .. }));
            assert!(is_busy, "{}: {second:?}", other.display());
        }
        drop(first);
    }
}

#[test]
fn an_operation_without_a_record_is_in_the_way_of_no_resume() {
    let state = tempfile::tempdir().unwrap();
    let root = Path::new(ROOT);
    let operation = begin(state.path()).unwrap();
    assert!(has_directory(state.path(), root, "c1"));
    assert!(!is_recorded(state.path(), root, "c1"));
    refuse_under_way(state.path(), root, "c1").unwrap();
    operation.record(&intent_of(1)).unwrap();
    assert!(is_recorded(state.path(), root, "c1"));
}

/// An intent with this many processes on all GPUs of a machine.
fn intent_of(processes: i32) -> Intent {
    let members = crate::fixtures::on_eight_gpus(processes);
    let members = members.into_iter().map(|process| Member {
        id: ProcessId {
            pid: 1_000_000 + process.pid,
            start_time: 1 << 40,
        },
        process,
        found: SafeState::Running,
        pending_on: PendingOn::Resume,
    });
    Intent {
        members: members.collect(),
        freezer: FreezerState::Frozen,
    }
}

#[test]
fn thousands_of_processes_are_recorded_and_what_could_not_be_read_again_is_not() {
    let state = tempfile::tempdir().unwrap();
    let operation = begin(state.path()).unwrap();
    operation.record(&intent_of(5_000)).unwrap();
    assert_eq!(operation.recorded().unwrap(), Some(intent_of(5_000)));
    let error = operation.record(&intent_of(25_000)).unwrap_err();
    let OperationError::Io { source, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(source.kind(), io::ErrorKind::InvalidData);
    assert_eq!(operation.recorded().unwrap(), Some(intent_of(5_000)));
    operation.clear();
}

#[test]
fn an_intent_outlives_its_operation_until_it_is_cleared() {
    let state = tempfile::tempdir().unwrap();
    let intent = intent_of(1);
    let operation = begin(state.path()).unwrap();
    assert_eq!(operation.recorded().unwrap(), None);
    operation.record(&intent).unwrap();
    drop(operation);
    assert!(has_directory(state.path(), Path::new(ROOT), "c1"));
    let operation = begin(state.path()).unwrap();
    assert_eq!(operation.recorded().unwrap().as_ref(), Some(&intent));
    // Processes left to others outlive an operation that has settled all that it moved.
    operation.settle(intent.clone()).unwrap();
    assert_eq!(operation.recorded().unwrap().as_ref(), Some(&intent));
    operation.settle(intent.resumed()).unwrap();
    assert!(!has_directory(state.path(), Path::new(ROOT), "c1"));
}

/// The next operation makes a directory of the same name.
#[test]
fn what_is_cleared_is_not_cleared_again_at_the_end() {
    let state = tempfile::tempdir().unwrap();
    let first = begin(state.path()).unwrap();
    first.clear();
    let second = begin(state.path()).unwrap();
    drop(first);
    assert!(second.directory().exists());
    let third = begin(state.path()).unwrap_err();
    assert!(matches!(third, OperationError::Busy { .. }), "{third}");
}
