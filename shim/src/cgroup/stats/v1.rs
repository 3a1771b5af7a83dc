//! The metrics of a cgroup on v1, as the package cgroup1 of containerd's cgroups fills them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use containerd_shim_protos::cgroups::metrics::{
    CPUStat, CPUUsage, HugetlbStat, MemoryEntry, MemoryOomControl, MemoryStat, Metrics, PidsStat,
    RdmaEntry, RdmaStat, Throttle,
};

use self::blkio::blkio;
use super::{
    Fields, RdmaDevice, each_pair, fill_from_files, fill_from_pairs, huge_page_sizes, number,
    parse, rdma, text,
};
use crate::cgroup::error::CgroupError;

mod blkio;

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
pub(crate) fn metrics(
    directories: &BTreeMap<String, PathBuf>,
    partitions: &Path,
) -> Result<Metrics, CgroupError> {
    let directory = |controller: &str| directories.get(controller).map(PathBuf::as_path);
    let mut metrics = Metrics::new();
    // The CPU message always has both of its parts; clients rely on it.
    metrics.cpu = Some(cpu(directory("cpu"), directory("cpuacct"))?).into();
    if let Some(directory) = directory("memory") {
        metrics.memory = memory(directory)?.into();
        let mut oom = MemoryOomControl::new();
        let present = fill_from_pairs(&mut oom, directory, "memory.oom_control", OOM_CONTROL)?;
        metrics.memory_oom_control = present.then_some(oom).into();
    }
    if let Some(directory) = directory("pids") {
        metrics.pids = pids(directory)?.into();
    }
    if let Some(directory) = directory("blkio") {
        metrics.blkio = Some(blkio(directory, partitions)?).into();
    }
    if let Some(directory) = directory("hugetlb") {
        metrics.hugetlb = hugetlb(directory)?;
    }
    if let Some(directory) = directory("rdma") {
        metrics.rdma = rdma_stat(directory)?.into();
    }
    Ok(metrics)
}

fn cpu(cpu: Option<&Path>, cpuacct: Option<&Path>) -> Result<CPUStat, CgroupError> {
    let mut throttling = Throttle::new();
    if let Some(directory) = cpu {
        fill_from_pairs(&mut throttling, directory, "cpu.stat", THROTTLING)?;
    }
    let usage = cpuacct.map(cpu_usage).transpose()?.unwrap_or_default();
    Ok(CPUStat {
        usage: Some(usage).into(),
        throttling: Some(throttling).into(),
        ..CPUStat::default()
    })
}

fn cpu_usage(directory: &Path) -> Result<CPUUsage, CgroupError> {
    let mut usage = CPUUsage::new();
    each_pair(directory, "cpuacct.stat", |key, ticks| {
        let nanoseconds = ticks.saturating_mul(NANOSECONDS_PER_TICK);
        match key {
            "user" => usage.user = nanoseconds,
            "system" => usage.kernel = nanoseconds,
            _ => {}
        }
    })?;
    usage.total = number(directory, "cpuacct.usage", NO_LIMIT)?.unwrap_or_default();
    let per_cpu = "cpuacct.usage_percpu";
    if let Some(text) = text(directory, per_cpu)? {
        usage.per_cpu = text
            .split_ascii_whitespace()
            .map(|word| parse(directory, per_cpu, word))
            .collect::<Result<_, _>>()?;
    }
    Ok(usage)
}

fn memory(directory: &Path) -> Result<Option<MemoryStat>, CgroupError> {
    let mut memory = MemoryStat::new();
    if !fill_from_pairs(&mut memory, directory, "memory.stat", MEMORY)? {
        return Ok(None);
    }
    // The message has all four even if the kernel does not account for swap or kernel memory.
    let entry = |prefix| {
        let mut entry = MemoryEntry::new();
        fill_from_files(&mut entry, directory, prefix, NO_LIMIT, MEMORY_ENTRY)?;
        Ok::<_, CgroupError>(Some(entry).into())
    };
    memory.usage = entry("memory.")?;
    memory.swap = entry("memory.memsw.")?;
    memory.kernel = entry("memory.kmem.")?;
    memory.kernel_tcp = entry("memory.kmem.tcp.")?;
    Ok(Some(memory))
}

fn pids(directory: &Path) -> Result<Option<PidsStat>, CgroupError> {
    let current = number(directory, "pids.current", NO_LIMIT)?;
    let limit = number(directory, "pids.max", NO_LIMIT)?;
    // The root cgroup has neither file.
    Ok(current.zip(limit).map(|(current, limit)| PidsStat {
        current,
        limit,
        ..PidsStat::default()
    }))
}

fn hugetlb(directory: &Path) -> Result<Vec<HugetlbStat>, CgroupError> {
    huge_page_sizes(directory, ".usage_in_bytes")?
        .into_iter()
        .map(|pagesize| {
            let mut stat = HugetlbStat::new();
            let prefix = format!("hugetlb.{pagesize}.");
            fill_from_files(&mut stat, directory, &prefix, NO_LIMIT, HUGETLB)?;
            stat.pagesize = pagesize;
            Ok(stat)
        })
        .collect()
}

fn rdma_stat(directory: &Path) -> Result<Option<RdmaStat>, CgroupError> {
    let current = rdma(directory, "rdma.current")?;
    let limit = rdma(directory, "rdma.max")?;
    // A device may be unplugged between the two reads; containerd leaves it out then, too.
    Ok(current
        .zip(limit)
        .filter(|(current, limit)| current.len() == limit.len())
        .map(|(current, limit)| RdmaStat {
            current: current.into_iter().map(rdma_entry).collect(),
            limit: limit.into_iter().map(rdma_entry).collect(),
            ..RdmaStat::default()
        }))
}

fn rdma_entry(device: RdmaDevice) -> RdmaEntry {
    RdmaEntry {
        device: device.name,
        hca_handles: device.handles,
        hca_objects: device.objects,
        ..RdmaEntry::default()
    }
}
