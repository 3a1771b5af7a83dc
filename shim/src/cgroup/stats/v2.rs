//! The metrics of a cgroup on v2, as the package cgroup2 of containerd's cgroups fills them.
//!
//! The messages for pids, CPU, memory, io and rdma are always present, if only with zeros:
//! containerd always sends them, and clients (nerdctl stats) read them without a check.

use std::path::Path;

use containerd_shim_protos::cgroups_v2::metrics::{
    CPUStat, HugeTlbStat, IOEntry, IOStat, MemoryEvents, MemoryStat, Metrics, PSIData, PSIStats,
    PidsStat, RdmaEntry, RdmaStat,
};
use containerd_shim_protos::protobuf::MessageField;

use super::{
    Fields, RdmaDevice, each_pair, fill_from_files, fill_from_pairs, huge_page_sizes, nonsense,
    rdma, text,
};
use crate::cgroup::error::CgroupError;

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
pub(crate) fn metrics(directory: &Path) -> Result<Metrics, CgroupError> {
    let mut pids = PidsStat::new();
    fill_from_files(&mut pids, directory, "pids.", NO_LIMIT, PIDS)?;

    let mut cpu = CPUStat::new();
    fill_from_pairs(&mut cpu, directory, "cpu.stat", CPU)?;
    cpu.psi = pressure(directory, "cpu.pressure")?;

    let mut memory = MemoryStat::new();
    fill_from_pairs(&mut memory, directory, "memory.stat", MEMORY)?;
    fill_from_files(&mut memory, directory, "memory.", NO_LIMIT, MEMORY_FILES)?;
    memory.psi = pressure(directory, "memory.pressure")?;

    let mut events = MemoryEvents::new();
    let have_events = fill_from_pairs(&mut events, directory, "memory.events", MEMORY_EVENTS)?;

    Ok(Metrics {
        pids: Some(pids).into(),
        cpu: Some(cpu).into(),
        memory: Some(memory).into(),
        memory_events: have_events.then_some(events).into(),
        io: Some(io(directory)?).into(),
        rdma: Some(RdmaStat {
            current: rdma_entries(directory, "rdma.current")?,
            limit: rdma_entries(directory, "rdma.max")?,
            ..RdmaStat::default()
        })
        .into(),
        hugetlb: hugetlb(directory)?,
        ..Metrics::default()
    })
}

/// Lines "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6". The kernel leaves out the
/// numbers of a device that has none, and policies add words of their own (cgroup-v2.rst,
/// io.stat), so only the words that have a field must be numbers.
fn io(directory: &Path) -> Result<IOStat, CgroupError> {
    let name = "io.stat";
    let device = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        let mut entry = IOEntry::new();
        entry.major = major.parse().ok()?;
        entry.minor = minor.parse().ok()?;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            if let Some((_, field)) = IO.iter().find(|(wanted, _)| *wanted == key) {
                *field(&mut entry) = value.parse().ok()?;
            }
        }
        Some(entry)
    };
    let usage = text(directory, name)?
        .unwrap_or_default()
        .lines()
        .map(|line| device(line).ok_or_else(|| nonsense(directory, name, line)))
        .collect::<Result<_, _>>()?;
    Ok(IOStat {
        usage,
        psi: pressure(directory, "io.pressure")?,
        ..IOStat::default()
    })
}

/// Lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and "full …" (accounting/psi.rst).
fn pressure(directory: &Path, name: &str) -> Result<MessageField<PSIStats>, CgroupError> {
    let Some(text) = text(directory, name)? else {
        return Ok(MessageField::none());
    };
    let mut stats = PSIStats::new();
    for line in text.lines() {
        let (kind, averages) = line.split_once(' ').unwrap_or((line, ""));
        let data = pressure_data(averages).ok_or_else(|| nonsense(directory, name, line))?;
        match kind {
            "some" => stats.some = Some(data).into(),
            "full" => stats.full = Some(data).into(),
            _ => {}
        }
    }
    Ok(Some(stats).into())
}

fn pressure_data(averages: &str) -> Option<PSIData> {
    let mut data = PSIData::new();
    for word in averages.split_ascii_whitespace() {
        let (key, value) = word.split_once('=')?;
        match key {
            "avg10" => data.avg10 = value.parse().ok()?,
            "avg60" => data.avg60 = value.parse().ok()?,
            "avg300" => data.avg300 = value.parse().ok()?,
            "total" => data.total = value.parse().ok()?,
            _ => {}
        }
    }
    Some(data)
}

fn hugetlb(directory: &Path) -> Result<Vec<HugeTlbStat>, CgroupError> {
    huge_page_sizes(directory, ".current")?
        .into_iter()
        .map(|pagesize| {
            let mut stat = HugeTlbStat::new();
            let prefix = format!("hugetlb.{pagesize}.");
            fill_from_files(&mut stat, directory, &prefix, NO_LIMIT, HUGETLB)?;
            // "max 3": how often an allocation failed at the limit.
            each_pair(directory, &format!("{prefix}events"), |key, value| {
                if key == "max" {
                    stat.failcnt = value;
                }
            })?;
            stat.pagesize = pagesize;
            Ok(stat)
        })
        .collect()
}

fn rdma_entries(directory: &Path, name: &str) -> Result<Vec<RdmaEntry>, CgroupError> {
    let entry = |device: RdmaDevice| RdmaEntry {
        device: device.name,
        hca_handles: device.handles,
        hca_objects: device.objects,
        ..RdmaEntry::default()
    };
    let devices = rdma(directory, name)?.unwrap_or_default();
    Ok(devices.into_iter().map(entry).collect())
}
