//! The block devices a cgroup of v1 used.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use containerd_shim_protos::cgroups::metrics::{BlkIOEntry, BlkIOStat};

use crate::cgroup::error::CgroupError;
use crate::cgroup::stats::{nonsense, text};

type BlkioField = fn(&mut BlkIOStat) -> &mut Vec<BlkIOEntry>;

/// The files of the throttling policy. Those of the scheduler CFQ went with it (Linux 5.0).
const FILES: [(&str, BlkioField); 2] = [
    ("throttle.io_serviced", |blkio| {
        &mut blkio.io_serviced_recursive
    }),
    ("throttle.io_service_bytes", |blkio| {
        &mut blkio.io_service_bytes_recursive
    }),
];

pub(super) fn blkio(directory: &Path, partitions: &Path) -> Result<BlkIOStat, CgroupError> {
    let mut blkio = BlkIOStat::new();
    for (name, field) in FILES {
        *field(&mut blkio) = blkio_entries(directory, &format!("blkio.{name}"))?;
    }
    if FILES.iter().any(|(_, field)| !field(&mut blkio).is_empty()) {
        name_devices(&mut blkio, partitions)?;
    }
    Ok(blkio)
}

/// Lines "8:0 Read 4096", and a "Total 4096" at the end
/// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
fn blkio_entries(directory: &Path, name: &str) -> Result<Vec<BlkIOEntry>, CgroupError> {
    let entry = |line: &str| {
        let mut words = line.split([' ', ':']).filter(|word| !word.is_empty());
        let major = words.next()?.parse().ok()?;
        let minor = words.next()?.parse().ok()?;
        let (operation, value) = (words.next()?, words.next()?);
        Some(BlkIOEntry {
            op: operation.to_owned(),
            major,
            minor,
            value: value.parse().ok()?,
            ..BlkIOEntry::default()
        })
    };
    text(directory, name)?
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.starts_with("Total"))
        .map(|line| entry(line).ok_or_else(|| nonsense(directory, name, line)))
        .collect()
}

/// Lines "8 0 976762584 sda" after a heading and an empty line. A device that is not in there (a
/// partition table was read again) stays without a name.
fn name_devices(blkio: &mut BlkIOStat, partitions: &Path) -> Result<(), CgroupError> {
    let text = fs::read_to_string(partitions).map_err(|source| CgroupError::Read {
        path: partitions.to_owned(),
        source,
    })?;
    let mut names = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let numbers = (
            words.next().and_then(|word| word.parse::<u64>().ok()),
            words.next().and_then(|word| word.parse::<u64>().ok()),
        );
        if let ((Some(major), Some(minor)), Some(name)) = (numbers, words.nth(1)) {
            names.entry((major, minor)).or_insert(name);
        }
    }
    for (_, field) in FILES {
        for entry in field(blkio) {
            if let Some(name) = names.get(&(entry.major, entry.minor)) {
                entry.device = format!("/dev/{name}");
            }
        }
    }
    Ok(())
}
