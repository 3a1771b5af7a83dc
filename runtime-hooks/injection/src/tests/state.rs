//! State that must be the same before and after.

use std::fs;
use std::os::unix::fs::FileExt;

use super::program::Workload;
use crate::slots::Slots;

/// The visible state of a process, and its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    maps: String,
    tasks: Vec<String>,
    descriptors: Vec<String>,
    children: String,
    slots: [u64; 2],
}

impl State {
    pub(super) fn of(workload: &Workload, slots: &Slots) -> Self {
        let pid = workload.pid();
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let list = |name: &str| {
            let entries = fs::read_dir(format!("/proc/{pid}/{name}")).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        Self {
            maps: read("maps"),
            tasks: list("task"),
            descriptors: list("fd"),
            children: read(&format!("task/{pid}/children")),
            slots: [slots.memcpy, slots.mmap].map(|slot| value(workload, slot.address)),
        }
    }
}

pub(super) fn memory(workload: &Workload) -> fs::File {
    let path = format!("/proc/{}/mem", workload.pid());
    let options = fs::File::options().read(true).write(true).open(path);
    options.unwrap()
}

pub(super) fn value(workload: &Workload, address: u64) -> u64 {
    let mut bytes = [0; 8];
    memory(workload).read_exact_at(&mut bytes, address).unwrap();
    u64::from_ne_bytes(bytes)
}

impl State {
    /// But for the mapping at these addresses, of which the kernel shows others nearby differently
    /// when it is another.
    pub(super) fn without(mut self, contents: crate::Span) -> Self {
        let end = format!("-{:x} ", contents.start + contents.length);
        let begins = format!("{:x}-", contents.start);
        let lines = self.maps.lines();
        let others = lines.filter(|line| !line.contains(&end) && !line.starts_with(&begins));
        self.maps = others.collect::<Vec<_>>().join("\n");
        self
    }
    /// Whether there is an area that the kernel shows so.
    pub(super) fn has_area(&self, begins: &str) -> bool {
        self.maps.lines().any(|line| line.starts_with(begins))
    }

    /// How many bytes are mapped.
    pub(super) fn mapped(&self) -> u64 {
        let length = |line: &str| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
            end - start
        };
        self.maps.lines().map(length).sum()
    }
}

/// Returns a field of the smaps area that has these addresses, in KiB.
pub(super) fn smaps_kib(workload: &Workload, contents: crate::Span, field: &str) -> u64 {
    let value = smaps(workload, contents, field);
    value.strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Returns a field of the smaps area that has these addresses.
pub(super) fn smaps(workload: &Workload, contents: crate::Span, field: &str) -> String {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", workload.pid())).unwrap();
    let mut is_there = false;
    for line in smaps.lines() {
        if let Some(area) = stasis_linux::procfs::Mapping::parse(line.as_bytes()) {
            is_there = (area.start..area.end).contains(&contents.start);
        }
        let value = line.strip_prefix(field);
        if let Some(value) = value.and_then(|rest| rest.strip_prefix(':'))
            && is_there
        {
            return value.trim().to_owned();
        }
    }
    panic!("no {field} at {contents:?}");
}
