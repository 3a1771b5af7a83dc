//! What must be the same before and after.

use std::fs;
use std::os::unix::fs::FileExt;

use super::program::Workload;
use crate::slots::Slots;

/// What can be seen of a process, and its slots.
#[derive(Debug, PartialEq, Eq)]
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
}
