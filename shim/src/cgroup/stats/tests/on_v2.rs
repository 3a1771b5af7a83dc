use super::v2_metrics;

#[test]
fn v2_cpu_and_pids() {
    let metrics = v2_metrics(&[
        (
            "cpu.stat",
            "usage_usec 9\nuser_usec 6\nsystem_usec 3\ncore_sched.force_idle_usec 0\nnr_bursts 2\nburst_usec 8\n",
        ),
        (
            "cpu.pressure",
            "some avg10=1.84 avg60=1.04 avg300=0.00 total=779\nfull avg10=0.00 avg60=0.00 avg300=2.50 total=1\n",
        ),
        ("pids.current", "3\n"),
        ("pids.max", "max\n"),
    ]);
    assert_eq!(
        [
            metrics.cpu.usage_usec,
            metrics.cpu.user_usec,
            metrics.cpu.system_usec
        ],
        [9, 6, 3]
    );
    assert_eq!([metrics.cpu.nr_bursts, metrics.cpu.burst_usec], [2, 8]);
    assert_eq!(metrics.cpu.psi.some.total, 779);
    assert!((metrics.cpu.psi.some.avg10 - 1.84).abs() < 1e-9);
    assert!((metrics.cpu.psi.full.avg300 - 2.5).abs() < 1e-9);
    assert_eq!((metrics.pids.current, metrics.pids.limit), (3, u64::MAX));
}

#[test]
fn v2_memory() {
    let metrics = v2_metrics(&[
        (
            "memory.stat",
            "anon 1\nfile 2\nzswap 9\nthp_collapse_alloc 3\n",
        ),
        ("memory.current", "10\n"),
        ("memory.max", "max\n"),
        ("memory.peak", "12\n"),
        ("memory.swap.current", "13\n"),
        ("memory.swap.max", "14\n"),
        ("memory.swap.peak", "15\n"),
        (
            "memory.events",
            "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\nsock_throttled 7\n",
        ),
    ]);
    let memory = metrics.memory.unwrap();
    assert_eq!(
        [memory.anon, memory.file, memory.thp_collapse_alloc],
        [1, 2, 3]
    );
    assert_eq!(
        [memory.usage, memory.usage_limit, memory.max_usage],
        [10, u64::MAX, 12]
    );
    assert_eq!(
        [memory.swap_usage, memory.swap_limit, memory.swap_max_usage],
        [13, 14, 15]
    );
    let events = metrics.memory_events.unwrap();
    assert_eq!([events.low, events.high, events.max], [1, 2, 3]);
    assert_eq!(
        [events.oom, events.oom_kill, events.oom_group_kill],
        [4, 5, 6]
    );
}

#[test]
fn v2_io_and_hugetlb() {
    let metrics = v2_metrics(&[
        (
            "io.stat",
            "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n8:16\n8:32 rbytes=7 cost.usage=x\n",
        ),
        (
            "io.pressure",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=4\n",
        ),
        ("hugetlb.2MB.current", "2097152\n"),
        ("hugetlb.2MB.max", "max\n"),
        ("hugetlb.2MB.events", "max 3\n"),
        ("hugetlb.2MB.rsvd.current", "1\n"),
    ]);
    let usage = &metrics.io.usage;
    assert_eq!(usage.len(), 3);
    let first = &usage[0];
    assert_eq!([first.major, first.minor], [254, 0]);
    assert_eq!(
        [first.rbytes, first.wbytes, first.rios, first.wios],
        [1, 2, 3, 4]
    );
    assert_eq!([usage[2].minor, usage[2].rbytes], [32, 7]);
    assert_eq!(metrics.io.psi.some.total, 4);
    assert_eq!(metrics.hugetlb.len(), 1);
    let stat = &metrics.hugetlb[0];
    assert_eq!(
        (stat.pagesize.as_str(), stat.current, stat.max, stat.failcnt),
        ("2MB", 2_097_152, u64::MAX, 3)
    );
}

#[test]
fn v2_parts_without_files_are_those_containerd_sends() {
    let metrics = v2_metrics(&[]);
    assert!(metrics.cpu.is_some() && metrics.cpu.psi.is_none());
    assert!(metrics.memory.is_some() && metrics.pids.is_some());
    assert!(metrics.io.is_some() && metrics.rdma.is_some());
    assert!(metrics.memory_events.is_none());
    assert!(metrics.hugetlb.is_empty() && metrics.network.is_empty());
}
