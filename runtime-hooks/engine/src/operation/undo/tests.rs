//! Tests that records are written, and found again.

use std::fs;

use super::*;
use crate::operation::Operation;

fn undo(id: &str) -> Undo {
    Undo {
        id: id.to_owned(),
        root: "/run/runc".into(),
        init: None,
        low_level: LowLevel {
            path: "/usr/sbin/runc".into(),
            flavor: stasis_config::Flavor::Runc,
        },
        driver: Driver::default(),
        deadlines: Settings::default().deadlines,
        paths: Settings::default().paths,
        gpu_contents: GpuContents::default(),
        begun: Begun::Checkpoint {
            found: FreezerState::Frozen,
            image: Some("/images/1".into()),
            shared: None,
        },
    }
}

#[test]
fn what_is_left_to_undo_is_found() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(Undo::all(state.path()).unwrap(), []);
    for id in ["c1", "c2"] {
        let operation = Operation::begin(state.path(), Path::new("/run/runc"), id).unwrap();
        undo(id).write(operation.directory()).unwrap();
    }
    let broken = Operation::begin(state.path(), Path::new("/run/runc"), "c3").unwrap();
    fs::write(broken.directory().join(FILE_NAME), "{").unwrap();
    assert_eq!(Undo::all(state.path()).unwrap(), [undo("c1"), undo("c2")]);
    drop(broken);
}

#[test]
fn an_operation_leaves_what_another_has_left_to_undo() {
    let state = tempfile::tempdir().unwrap();
    let begin = || Operation::begin(state.path(), Path::new("/run/runc"), "c1").unwrap();
    let operation = begin();
    let directory = operation.directory().to_owned();
    assert!(!Undo::is_cut_off(&directory));
    undo("c1").write(&directory).unwrap();
    assert!(!Undo::is_cut_off(&directory), "somebody is there");
    drop(operation);
    assert!(Undo::is_cut_off(&directory));
    assert_eq!(begin().left_behind().unwrap(), Some(undo("c1")));
    let operation = begin();
    operation.clear();
    drop(operation);
    assert_eq!(begin().left_behind().unwrap(), None);
}
