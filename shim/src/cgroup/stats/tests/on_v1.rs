use containerd_shim_protos::cgroups::metrics::{BlkIOEntry, MemoryEntry};

use super::v1_metrics;

#[test]
fn v1_cpu() {
    let cpu = v1_metrics(&[
        (
            "cpu.stat",
            "nr_periods 5\nnr_throttled 2\nthrottled_time 77\nnr_bursts 1\n",
        ),
        ("cpuacct.stat", "user 12\nsystem 3\n"),
        ("cpuacct.usage", "151234567\n"),
        ("cpuacct.usage_percpu", "100000000 51234567 \n"),
    ])
    .cpu;
    assert_eq!(cpu.throttling.periods, 5);
    assert_eq!(cpu.throttling.throttled_periods, 2);
    assert_eq!(cpu.throttling.throttled_time, 77);
    assert_eq!(cpu.usage.user, 120_000_000);
    assert_eq!(cpu.usage.kernel, 30_000_000);
    assert_eq!(cpu.usage.total, 151_234_567);
    assert_eq!(cpu.usage.per_cpu, [100_000_000, 51_234_567]);
}

#[test]
fn v1_memory() {
    let metrics = v1_metrics(&[
        (
            "memory.stat",
            "cache 1\nrss -4096\npgpgin 3\nhierarchical_memsw_limit 4\n\
             total_pgmajfault 5\ntotal_unevictable 6\nworkingset_refault_anon 7\n",
        ),
        ("memory.usage_in_bytes", "10\n"),
        ("memory.max_usage_in_bytes", "11\n"),
        ("memory.failcnt", "12\n"),
        ("memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory.memsw.usage_in_bytes", "20\n"),
        ("memory.kmem.failcnt", "30\n"),
        ("memory.kmem.tcp.limit_in_bytes", "40\n"),
        (
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 1\noom_kill 2\n",
        ),
    ]);
    let memory = metrics.memory.unwrap();
    assert_eq!(memory.cache, 1);
    assert_eq!(memory.rss, 0, "a sum that is below zero for a moment");
    assert_eq!(memory.pg_pg_in, 3);
    assert_eq!(memory.hierarchical_swap_limit, 4);
    assert_eq!(memory.total_pg_maj_fault, 5);
    assert_eq!(memory.total_unevictable, 6);
    let entry = |entry: &MemoryEntry| [entry.usage, entry.max, entry.failcnt, entry.limit];
    assert_eq!(
        entry(&memory.usage),
        [10, 11, 12, 9_223_372_036_854_771_712]
    );
    assert_eq!(entry(&memory.swap), [20, 0, 0, 0]);
    assert_eq!(entry(&memory.kernel), [0, 0, 30, 0]);
    assert_eq!(entry(&memory.kernel_tcp), [0, 0, 0, 40]);
    assert_eq!(metrics.memory_oom_control.under_oom, 1);
    assert_eq!(metrics.memory_oom_control.oom_kill, 2);
}

#[test]
fn v1_pids_say_zero_for_no_limit() {
    for (max, limit) in [("max\n", 0), ("4096\n", 4096)] {
        let pids = v1_metrics(&[("pids.current", "3\n"), ("pids.max", max)]).pids;
        assert_eq!((pids.current, pids.limit), (3, limit));
    }
}

#[test]
fn v1_blkio_is_that_of_throttling() {
    let partitions = "major minor  #blocks  name\n\n 254        0  268435456 vda\n   8  0 9 sda\n";
    let throttle = [
        ("partitions", partitions),
        (
            "blkio.throttle.io_serviced",
            "254:0 Read 3\n254:0 Write 4\n254:0 Total 7\nTotal 7\n",
        ),
        ("blkio.throttle.io_service_bytes", "9:9 Read 5\nTotal 5\n"),
    ];
    let entries = |entries: &[BlkIOEntry]| {
        let line =
            |e: &BlkIOEntry| format!("{}:{} {} {} {}", e.major, e.minor, e.device, e.op, e.value);
        entries.iter().map(line).collect::<Vec<_>>()
    };

    let blkio = v1_metrics(&throttle).blkio;
    let expected = [
        "254:0 /dev/vda Read 3",
        "254:0 /dev/vda Write 4",
        "254:0 /dev/vda Total 7",
    ];
    assert_eq!(entries(&blkio.io_serviced_recursive), expected);
    assert_eq!(entries(&blkio.io_service_bytes_recursive), ["9:9  Read 5"]);
}

#[test]
fn v1_hugetlb() {
    let metrics = v1_metrics(&[
        ("hugetlb.2MB.usage_in_bytes", "2097152\n"),
        ("hugetlb.2MB.max_usage_in_bytes", "4194304\n"),
        ("hugetlb.2MB.failcnt", "1\n"),
        ("hugetlb.2MB.rsvd.usage_in_bytes", "9\n"),
        ("hugetlb.1GB.usage_in_bytes", "0\n"),
    ]);
    let sizes: Vec<_> = metrics.hugetlb.iter().map(|stat| &stat.pagesize).collect();
    assert_eq!(sizes, ["1GB", "2MB"]);
    let stat = &metrics.hugetlb[1];
    assert_eq!(
        [stat.usage, stat.max, stat.failcnt],
        [2_097_152, 4_194_304, 1]
    );
}

#[test]
fn v1_parts_without_files_are_not_set() {
    let metrics = v1_metrics(&[]);
    assert!(metrics.cpu.usage.is_some() && metrics.cpu.throttling.is_some());
    assert!(metrics.blkio.is_some());
    assert!(metrics.memory.is_none() && metrics.memory_oom_control.is_none());
    assert!(metrics.pids.is_none());
    assert!(metrics.hugetlb.is_empty());
    // As in the root cgroup of this and that kernel.
    assert!(v1_metrics(&[("pids.current", "1\n")]).pids.is_none());
}
