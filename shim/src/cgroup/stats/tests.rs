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
fn v1_metrics(files: &[(&str, &str)]) -> cgroups::metrics::Metrics {
    let directory = directory(files);
    let controllers = ["cpu", "cpuacct", "memory", "pids", "blkio", "hugetlb"];
    let directories: BTreeMap<String, PathBuf> = controllers
        .map(|controller| (controller.to_owned(), directory.path().to_owned()))
        .into();
    v1::metrics(&directories, &directory.path().join("partitions"))
}

fn v2_metrics(files: &[(&str, &str)]) -> cgroups_v2::metrics::Metrics {
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
fn what_is_no_number_or_cannot_be_read_counts_as_not_there() {
    let v1 = v1_metrics(&[
        ("cpu.stat", "nr_periods many\nnr_throttled 2\n"),
        ("cpuacct.usage_percpu", "1 x\n"),
        ("pids.current", "99999999999999999999\n"),
        ("blkio.throttle.io_serviced", "254:0 Read\n254 Read 3 4\n"),
    ]);
    assert_eq!(v1.cpu.throttling.throttled_periods, 2);
    assert_eq!(v1.cpu.usage.per_cpu, [1]);
    assert!(v1.pids.is_none() && v1.blkio.io_serviced_recursive.is_empty());
    let v2 = v2_metrics(&[
        ("memory.stat", "anon x\nfile 2\nshmem\n"),
        ("memory.max", "much\n"),
        ("io.stat", "vda rbytes=1\n254:0 rbytes=x wbytes=2\n"),
    ]);
    assert_eq!([v2.memory.anon, v2.memory.file], [0, 2]);
    assert_eq!(v2.memory.usage_limit, 0);
    assert_eq!(v2.io.usage.len(), 1);
    assert_eq!([v2.io.usage[0].rbytes, v2.io.usage[0].wbytes], [0, 2]);
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("cpu.stat")).unwrap();
    fs::write(directory.path().join("pids.current"), b"\xff").unwrap();
    assert_eq!(v2::metrics(directory.path()), v2_metrics(&[]));
}
