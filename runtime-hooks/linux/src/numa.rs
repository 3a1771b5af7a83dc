//! Memory near a device, on machines whose memory belongs to several NUMA nodes.
//!
//! The kernel takes a page from the node of the CPU that asks for it, and from the nearest other
//! one if that has none left (Documentation/admin-guide/mm/numa_memory_policy.rst, "System default
//! policy"). So a thread that needs memory of a node runs there while it asks.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::procfs::cpu_list;

/// Far more than a list of all possible CPUs.
const LIMIT: u64 = 64 << 10;

/// A NUMA node of this machine, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NumaNode(u32);

impl NumaNode {
    /// Returns the node of a PCI device; `None` if it has none, as on machines with one node, or if
    /// the device does not exist. `address` has NVML's form, with a domain of eight digits, or
    /// sysfs's, with four.
    #[must_use]
    pub fn of_pci_device(address: &str) -> Option<Self> {
        of_pci_device(Path::new("/sys"), address)
    }

    /// Returns the node's CPUs; none for a node that has only memory.
    ///
    /// # Errors
    /// Errors of reading the list; [`io::ErrorKind::InvalidData`].
    pub fn cpus(self) -> io::Result<Vec<usize>> {
        let list = format!("/sys/devices/system/node/node{}/cpulist", self.0);
        let list = read(Path::new(&list))?;
        cpu_list(list.trim()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Runs `work` on the node's CPUs, so that new memory comes from the node. Where that fails,
    /// runs it on any CPU: nearness makes memory faster, and nothing depends on it.
    pub fn near<T>(self, work: impl FnOnce() -> T) -> T {
        let before = self.cpus().and_then(|cpus| on_cpus(&cpus));
        let done = work();
        if let Ok(before) = before {
            let _ = sched_setaffinity(None, &before);
        }
        done
    }
}

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NUMA node {}", self.0)
    }
}

fn of_pci_device(sys: &Path, address: &str) -> Option<NumaNode> {
    let (domain, rest) = address.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    if rest.contains('/') {
        return None;
    }
    let device = format!("bus/pci/devices/{domain:04x}:{}", rest.to_ascii_lowercase());
    // "-1" where the firmware names no node (Documentation/ABI/testing/sysfs-bus-pci).
    let number = read(&sys.join(device).join("numa_node")).ok()?;
    Some(NumaNode(number.trim().parse().ok()?))
}

/// Restricts this thread to these CPUs, and returns its earlier ones.
fn on_cpus(cpus: &[usize]) -> io::Result<CpuSet> {
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    // EINVAL if the cpuset of this process has none of them.
    sched_setaffinity(None, &set)?;
    Ok(before)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_device_has_the_node_that_sysfs_names() {
        let sys = tempfile::tempdir().unwrap();
        let node = |text: &str, address| {
            let device = sys.path().join("bus/pci/devices/0001:ab:00.0");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("numa_node"), text).unwrap();
            of_pci_device(sys.path(), address)
        };
        assert_eq!(node("1\n", "00000001:AB:00.0"), Some(NumaNode(1)));
        assert_eq!(node("1\n", "0001:ab:00.0"), Some(NumaNode(1)));
        assert_eq!(node("-1\n", "00000001:AB:00.0"), None);
        assert_eq!(node("1\n", "00000001:AC:00.0"), None);
        assert_eq!(node("1\n", "1:../0001:ab:00.0"), None);
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(cpu_list(""), Some(Vec::new()));
        assert_eq!(cpu_list("0-x"), None);
        let most = cpu_list("0-99999999999").map(|cpus| cpus.len());
        assert_eq!(most, Some(CpuSet::MAX_CPU + 1));
    }

    #[test]
    fn work_is_done_on_the_cpus_of_a_node() {
        let before = sched_getaffinity(None).unwrap();
        let here = NumaNode(0);
        let cpus = here.cpus().unwrap();
        let during = here.near(|| sched_getaffinity(None).unwrap());
        assert!((0..CpuSet::MAX_CPU).all(|cpu| !during.is_set(cpu) || cpus.contains(&cpu)));
        assert!(during.count() > 0);
        let first = (0..CpuSet::MAX_CPU)
            .find(|cpu| before.is_set(*cpu))
            .unwrap();
        let found = on_cpus(&[first]).unwrap();
        assert!(found == before);
        let alone = sched_getaffinity(None).unwrap();
        assert!(alone.count() == 1 && alone.is_set(first));
        sched_setaffinity(None, &before).unwrap();
        assert_eq!(
            NumaNode(9999).near(|| 7),
            7,
            "a node that is not there is no error"
        );
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
