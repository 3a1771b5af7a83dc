//! The metrics of a cgroup on v1, as the package cgroup1 of containerd's cgroups fills them. The
//! rdma controller is left out: no client reads its metrics.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use containerd_shim_protos::cgroups::metrics::{
    BlkIOEntry, BlkIOStat, CPUStat, CPUUsage, HugetlbStat, MemoryEntry, MemoryOomControl,
    MemoryStat, Metrics, PidsStat, Throttle,
};

use super::{Fields, each_pair, fill_from_files, from_pairs, huge_page_sizes, number, parse, text};

/// The full name of the message, which containerd uses as its type.
pub(crate) const TYPE: &str = "io.containerd.cgroups.v1.Metrics";

/// cpuacct.stat counts in USER_HZ (Documentation/admin-guide/cgroup-v1/cpuacct.rst), which is 100
/// on all supported architectures.
const NANOSECONDS_PER_TICK: u64 = 1_000_000_000 / 100;

/// containerd sends 0 for "max" on v1, and its clients print 0 as "no limit".
const NO_LIMIT: u64 = 0;

const THROTTLING: Fields<Throttle> = fields! {
    nr_periods = periods, nr_throttled = throttled_periods, throttled_time,
};

const MEMORY: Fields<MemoryStat> = fields! {
    cache, rss, rss_huge, mapped_file, dirty, writeback, pgpgin = pg_pg_in, pgpgout = pg_pg_out,
    pgfault = pg_fault, pgmajfault = pg_maj_fault, inactive_anon, active_anon, inactive_file,
    active_file, unevictable, hierarchical_memory_limit,
    hierarchical_memsw_limit = hierarchical_swap_limit, total_cache, total_rss, total_rss_huge,
    total_mapped_file, total_dirty, total_writeback, total_pgpgin = total_pg_pg_in,
    total_pgpgout = total_pg_pg_out, total_pgfault = total_pg_fault,
    total_pgmajfault = total_pg_maj_fault, total_inactive_anon, total_active_anon,
    total_inactive_file, total_active_file, total_unevictable,
};

const MEMORY_ENTRY: Fields<MemoryEntry> = fields! {
    usage_in_bytes = usage, max_usage_in_bytes = max, failcnt, limit_in_bytes = limit,
};

const OOM_CONTROL: Fields<MemoryOomControl> = fields! { oom_kill_disable, under_oom, oom_kill };

const HUGETLB: Fields<HugetlbStat> = fields! {
    usage_in_bytes = usage, max_usage_in_bytes = max, failcnt,
};

/// The metrics of the cgroup with these directories, by controller. `partitions` is
/// `/proc/partitions`, which has the names of the block devices.
pub(crate) fn metrics(directories: &BTreeMap<String, PathBuf>, partitions: &Path) -> Metrics {
    let directory = |controller: &str| directories.get(controller).map(PathBuf::as_path);
    let mut metrics = Metrics::new();
    // The CPU message always has both of its parts; clients rely on it.
    metrics.cpu = Some(cpu(directory("cpu"), directory("cpuacct"))).into();
    if let Some(directory) = directory("memory") {
        metrics.memory = memory(directory).into();
        metrics.memory_oom_control =
            from_pairs(directory, "memory.oom_control", OOM_CONTROL).into();
    }
    metrics.pids = directory("pids").and_then(pids).into();
    let blkio = directory("blkio").map(|directory| blkio(directory, partitions));
    metrics.blkio = blkio.into();
    metrics.hugetlb = directory("hugetlb").map(hugetlb).unwrap_or_default();
    metrics
}

fn cpu(cpu: Option<&Path>, cpuacct: Option<&Path>) -> CPUStat {
    let throttling = cpu.and_then(|directory| from_pairs(directory, "cpu.stat", THROTTLING));
    CPUStat {
        usage: Some(cpuacct.map(cpu_usage).unwrap_or_default()).into(),
        throttling: Some(throttling.unwrap_or_default()).into(),
        ..CPUStat::default()
    }
}

fn cpu_usage(directory: &Path) -> CPUUsage {
    let mut usage = CPUUsage::new();
    each_pair(directory, "cpuacct.stat", |key, ticks| {
        let nanoseconds = ticks.saturating_mul(NANOSECONDS_PER_TICK);
        match key {
            "user" => usage.user = nanoseconds,
            "system" => usage.kernel = nanoseconds,
            _ => {}
        }
    });
    usage.total = number(directory, "cpuacct.usage", NO_LIMIT).unwrap_or_default();
    let per_cpu = text(directory, "cpuacct.usage_percpu").unwrap_or_default();
    usage.per_cpu = per_cpu.split_ascii_whitespace().filter_map(parse).collect();
    usage
}

fn memory(directory: &Path) -> Option<MemoryStat> {
    let mut memory = from_pairs(directory, "memory.stat", MEMORY)?;
    // The message has all four even if the kernel does not account for swap or kernel memory.
    let entry = |prefix| {
        let mut entry = MemoryEntry::new();
        fill_from_files(&mut entry, directory, prefix, NO_LIMIT, MEMORY_ENTRY);
        Some(entry).into()
    };
    memory.usage = entry("memory.");
    memory.swap = entry("memory.memsw.");
    memory.kernel = entry("memory.kmem.");
    memory.kernel_tcp = entry("memory.kmem.tcp.");
    Some(memory)
}

fn pids(directory: &Path) -> Option<PidsStat> {
    // The root cgroup has neither file.
    Some(PidsStat {
        current: number(directory, "pids.current", NO_LIMIT)?,
        limit: number(directory, "pids.max", NO_LIMIT)?,
        ..PidsStat::default()
    })
}

fn hugetlb(directory: &Path) -> Vec<HugetlbStat> {
    let stat = |pagesize: String| {
        let mut stat = HugetlbStat::new();
        let prefix = format!("hugetlb.{pagesize}.");
        fill_from_files(&mut stat, directory, &prefix, NO_LIMIT, HUGETLB);
        stat.pagesize = pagesize;
        stat
    };
    let sizes = huge_page_sizes(directory, ".usage_in_bytes");
    sizes.into_iter().map(stat).collect()
}

/// Reads the files of the throttling policy. Linux 5.0 removed those of the scheduler CFQ.
fn blkio(directory: &Path, partitions: &Path) -> BlkIOStat {
    let partitions = std::fs::read_to_string(partitions).unwrap_or_default();
    let entries = |name| {
        let text = text(directory, name).unwrap_or_default();
        let entries = text
            .lines()
            .filter_map(|line| blkio_entry(line, &partitions));
        entries.collect()
    };
    BlkIOStat {
        io_serviced_recursive: entries("blkio.throttle.io_serviced"),
        io_service_bytes_recursive: entries("blkio.throttle.io_service_bytes"),
        ..BlkIOStat::default()
    }
}

/// A line "8:0 Read 4096"; at the end is a "Total 4096"
/// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst). The devices' names are in lines
/// "8 0 976762584 sda".
fn blkio_entry(line: &str, partitions: &str) -> Option<BlkIOEntry> {
    let mut words = line.split([' ', ':']);
    let (major, minor) = (words.next()?, words.next()?);
    let named = partitions.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let is_it = words.next() == Some(major) && words.next() == Some(minor);
        is_it.then(|| words.nth(1)).flatten()
    });
    Some(BlkIOEntry {
        op: words.next()?.to_owned(),
        device: named.map(|name| format!("/dev/{name}")).unwrap_or_default(),
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        value: words.next()?.parse().ok()?,
        ..BlkIOEntry::default()
    })
}
