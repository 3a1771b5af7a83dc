use std::fs;

use super::*;

fn own() -> ProcessRef {
    ProcessRef::open(i32::try_from(std::process::id()).unwrap())
        .unwrap()
        .unwrap()
}

fn root_with(file: &str, text: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("c1");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join(file), text).unwrap();
    root
}

#[test]
fn runc_on_cgroup_v1_gives_the_freezer_directory() {
    let text = format!(
        r#"{{"id":"c1","init_process_pid":{},"init_process_start":{},
            "cgroup_paths":{{"freezer":"/f/c1","memory":"/m/c1"}},"config":{{}}}}"#,
        own().pid(),
        own().start_time()
    );
    let root = root_with("state.json", &text);
    let container = Container::load(Flavor::Runc, root.path(), "c1").unwrap();
    assert_eq!(container.cgroup().directory(), Path::new("/f/c1"));
    assert_eq!(
        container.pid_inside(&own()),
        own().pid_at_depth(own().namespace_depth())
    );
}

#[test]
fn a_reused_pid_is_a_stopped_container() {
    let text = format!(
        r#"{{"init_process_pid":{},"init_process_start":1,"cgroup_paths":{{"":"/u/c1"}}}}"#,
        own().pid()
    );
    let root = root_with("state.json", &text);
    let error = Container::load(Flavor::Runc, root.path(), "c1").unwrap_err();
    assert!(matches!(error, ContainerError::Stopped { .. }), "{error}");
}

#[test]
fn crun_names_a_cgroup_below_the_mount() {
    let text = format!(
        r#"{{"pid":{},"process-start-time":{},"cgroup-path":"/machine/c1","scope":null}}"#,
        own().pid(),
        own().start_time()
    );
    let root = root_with("status", &text);
    let container = Container::load(Flavor::Crun, root.path(), "c1").unwrap();
    assert!(container.cgroup().directory().ends_with("machine/c1"));
}

#[test]
fn a_missing_and_a_malformed_state_are_told_apart() {
    let root = root_with("state.json", "{");
    let missing = Container::load(Flavor::Runc, root.path(), "c2").unwrap_err();
    assert!(
        matches!(missing, ContainerError::NotFound { .. }),
        "{missing}"
    );
    let malformed = Container::load(Flavor::Runc, root.path(), "c1").unwrap_err();
    assert!(
        matches!(malformed, ContainerError::Malformed { .. }),
        "{malformed}"
    );
}
