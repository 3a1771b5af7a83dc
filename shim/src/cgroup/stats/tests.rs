use std::collections::BTreeMap;
use std::path::PathBuf;

use containerd_shim_protos::protobuf::MessageFull;
use containerd_shim_protos::{cgroups, cgroups_v2};
use tempfile::TempDir;

use super::*;

mod on_v1;
mod on_v2;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

/// All controllers in one directory, as nothing in the code cares.
fn v1_metrics(files: &[(&str, &str)]) -> Result<cgroups::metrics::Metrics, CgroupError> {
    let directory = directory(files);
    let controllers = [
        "cpu", "cpuacct", "memory", "pids", "blkio", "hugetlb", "rdma",
    ];
    let directories: BTreeMap<String, PathBuf> = controllers
        .map(|controller| (controller.to_owned(), directory.path().to_owned()))
        .into();
    v1::metrics(&directories, &directory.path().join("partitions"))
}

fn v2_metrics(files: &[(&str, &str)]) -> Result<cgroups_v2::metrics::Metrics, CgroupError> {
    v2::metrics(directory(files).path())
}

#[test]
fn the_names_are_those_of_the_messages() {
    let v1 = cgroups::metrics::Metrics::descriptor();
    assert_eq!(v1.full_name(), v1::TYPE);
    let v2 = cgroups_v2::metrics::Metrics::descriptor();
    assert_eq!(v2.full_name(), v2::TYPE);
}

#[test]
fn nonsense_names_the_file_and_what_is_in_it() {
    for (name, content, quoted) in [
        ("cpu.stat", "nr_periods many\n", "many"),
        ("cpuacct.stat", "user\n", "user"),
        ("cpuacct.usage", "\n", ""),
        ("cpuacct.usage_percpu", "1 x\n", "x"),
        ("memory.stat", "cache 1 2\n", "cache 1 2"),
        ("memory.oom_control", "oom_kill ?\n", "?"),
        (
            "pids.current",
            "99999999999999999999\n",
            "99999999999999999999",
        ),
        ("blkio.throttle.io_serviced", "254:0 Read\n", "254:0 Read"),
        (
            "blkio.throttle.io_serviced",
            "254 Read 3 4\n",
            "254 Read 3 4",
        ),
        ("hugetlb.2MB.usage_in_bytes", "two\n", "two"),
        (
            "rdma.current",
            "mlx5_0 hca_handle=-\n",
            "mlx5_0 hca_handle=-",
        ),
    ] {
        assert_nonsense(v1_metrics(&[(name, content)]).map(drop), name, quoted);
    }
    for (name, content, quoted) in [
        ("cpu.stat", "usage_usec\n", "usage_usec"),
        ("memory.stat", "anon x\n", "x"),
        ("memory.max", "much\n", "much"),
        ("memory.events", "oom_kill 1 1\n", "oom_kill 1 1"),
        ("pids.max", "0x10\n", "0x10"),
        ("io.stat", "vda rbytes=1\n", "vda rbytes=1"),
        ("io.stat", "254:0 rbytes=x\n", "254:0 rbytes=x"),
        ("memory.pressure", "some avg10=high\n", "some avg10=high"),
        ("hugetlb.2MB.current", "two\n", "two"),
        ("rdma.max", "mlx5_0 hca_object\n", "mlx5_0 hca_object"),
    ] {
        assert_nonsense(v2_metrics(&[(name, content)]).map(drop), name, quoted);
    }
}

fn assert_nonsense(outcome: Result<(), CgroupError>, name: &str, quoted: &str) {
    match outcome {
        Err(CgroupError::Content { path, content }) => {
            assert_eq!(path.file_name().unwrap(), name);
            assert_eq!(content, quoted, "{name}");
        }
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn what_cannot_be_read_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("cpu.stat")).unwrap();
    let error = v2::metrics(directory.path()).unwrap_err();
    let path = directory.path().join("cpu.stat");
    assert_eq!(error.to_string(), format!("cannot read {}", path.display()));
    assert!(matches!(error, CgroupError::Read { .. }));
}
