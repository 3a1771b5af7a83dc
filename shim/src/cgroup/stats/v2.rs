//! The metrics of a cgroup on v2, as the package cgroup2 of containerd's cgroups fills them.
//!
//! The messages for pids, CPU, memory, io and rdma are always present, if only with zeros:
//! containerd always sends them, and clients (nerdctl stats) read them without a check. The counts
//! of the rdma controller are left out: no client reads them.

use std::path::Path;

use containerd_shim_protos::cgroups_v2::metrics::{
    CPUStat, HugeTlbStat, IOEntry, IOStat, MemoryEvents, MemoryStat, Metrics, PSIData, PSIStats,
    PidsStat, RdmaStat,
};
use containerd_shim_protos::protobuf::MessageField;

use super::{Fields, each_pair, fill_from_files, from_pairs, huge_page_sizes, set, text};

/// The full name of the message, which containerd uses as its type.
pub(crate) const TYPE: &str = "io.containerd.cgroups.v2.Metrics";

/// The number that containerd sends for "max".
const NO_LIMIT: u64 = u64::MAX;

const PIDS: Fields<PidsStat> = fields! { current, max = limit };

const CPU: Fields<CPUStat> = fields! {
    usage_usec, user_usec, system_usec, nr_periods, nr_throttled, throttled_usec, nr_bursts,
    burst_usec,
};

const MEMORY: Fields<MemoryStat> = fields! {
    anon, file, kernel_stack, slab, sock, shmem, file_mapped, file_dirty, file_writeback, anon_thp,
    inactive_anon, active_anon, inactive_file, active_file, unevictable, slab_reclaimable,
    slab_unreclaimable, pgfault, pgmajfault, workingset_refault, workingset_activate,
    workingset_nodereclaim, pgrefill, pgscan, pgsteal, pgactivate, pgdeactivate, pglazyfree,
    pglazyfreed, thp_fault_alloc, thp_collapse_alloc,
};

const MEMORY_FILES: Fields<MemoryStat> = &[
    ("current", |memory| &mut memory.usage),
    ("max", |memory| &mut memory.usage_limit),
    ("peak", |memory| &mut memory.max_usage),
    ("swap.current", |memory| &mut memory.swap_usage),
    ("swap.max", |memory| &mut memory.swap_limit),
    ("swap.peak", |memory| &mut memory.swap_max_usage),
];

const MEMORY_EVENTS: Fields<MemoryEvents> = fields! {
    low, high, max, oom, oom_kill, oom_group_kill,
};

const IO: Fields<IOEntry> = fields! { rbytes, wbytes, rios, wios };

const HUGETLB: Fields<HugeTlbStat> = fields! { current, max };

/// The metrics of the cgroup with this directory.
pub(crate) fn metrics(directory: &Path) -> Metrics {
    let mut pids = PidsStat::new();
    fill_from_files(&mut pids, directory, "pids.", NO_LIMIT, PIDS);

    let mut cpu = from_pairs(directory, "cpu.stat", CPU).unwrap_or_default();
    cpu.psi = pressure(directory, "cpu.pressure");

    let mut memory = from_pairs(directory, "memory.stat", MEMORY).unwrap_or_default();
    fill_from_files(&mut memory, directory, "memory.", NO_LIMIT, MEMORY_FILES);
    memory.psi = pressure(directory, "memory.pressure");

    Metrics {
        pids: Some(pids).into(),
        cpu: Some(cpu).into(),
        memory: Some(memory).into(),
        memory_events: from_pairs(directory, "memory.events", MEMORY_EVENTS).into(),
        io: Some(io(directory)).into(),
        rdma: Some(RdmaStat::new()).into(),
        hugetlb: hugetlb(directory),
        ..Metrics::default()
    }
}

/// Lines "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6". The kernel leaves out the
/// numbers of a device that has none, and policies add words of their own (cgroup-v2.rst,
/// io.stat).
fn io(directory: &Path) -> IOStat {
    let device = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        let mut entry = IOEntry::new();
        entry.major = major.parse().ok()?;
        entry.minor = minor.parse().ok()?;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            if let Ok(value) = value.parse() {
                set(&mut entry, IO, key, value);
            }
        }
        Some(entry)
    };
    let text = text(directory, "io.stat").unwrap_or_default();
    IOStat {
        usage: text.lines().filter_map(device).collect(),
        psi: pressure(directory, "io.pressure"),
        ..IOStat::default()
    }
}

/// Lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and "full …" (accounting/psi.rst).
fn pressure(directory: &Path, name: &str) -> MessageField<PSIStats> {
    let Some(text) = text(directory, name) else {
        return MessageField::none();
    };
    let mut stats = PSIStats::new();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("some", averages)) => stats.some = Some(pressure_data(averages)).into(),
            Some(("full", averages)) => stats.full = Some(pressure_data(averages)).into(),
            _ => {}
        }
    }
    Some(stats).into()
}

fn pressure_data(averages: &str) -> PSIData {
    let mut data = PSIData::new();
    let words = averages.split_ascii_whitespace();
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key {
            "avg10" => data.avg10 = value.parse().unwrap_or_default(),
            "avg60" => data.avg60 = value.parse().unwrap_or_default(),
            "avg300" => data.avg300 = value.parse().unwrap_or_default(),
            "total" => data.total = value.parse().unwrap_or_default(),
            _ => {}
        }
    }
    data
}

fn hugetlb(directory: &Path) -> Vec<HugeTlbStat> {
    let stat = |pagesize: String| {
        let mut stat = HugeTlbStat::new();
        let prefix = format!("hugetlb.{pagesize}.");
        fill_from_files(&mut stat, directory, &prefix, NO_LIMIT, HUGETLB);
        // "max 3": how often an allocation failed at the limit.
        each_pair(directory, &format!("{prefix}events"), |key, value| {
            if key == "max" {
                stat.failcnt = value;
            }
        });
        stat.pagesize = pagesize;
        stat
    };
    let sizes = huge_page_sizes(directory, ".current");
    sizes.into_iter().map(stat).collect()
}
