//! Amounts of a node's resources, and whether they fit beside each other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cuda::GpuUuid;
use crate::cuda::gpu_use::GpuBytes;

/// A resource that operations take from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Memory of a GPU.
    Gpu(GpuUuid),
    /// Memory of the host.
    HostMemory,
    /// Memory for GPU contents: the tmpfs where they lie, or are staged.
    Contents,
}

/// Bytes of each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Resource, u64)>", into = "Vec<(Resource, u64)>")]
pub struct Amounts(BTreeMap<Resource, u64>);

/// The reservation of one operation, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Name of the container that the operation works on, or of other work.
    pub(super) container: String,
    /// Pid of the operation.
    pub(super) pid: u32,
    /// The record that exists as long as the operation is to be undone, by any process.
    pub(super) record: Option<PathBuf>,
    pub(super) amounts: Amounts,
}

/// An amount that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// The resource of which there is too little.
    pub resource: Resource,
    /// Bytes wanted.
    pub wanted: u64,
    /// Bytes that are not in use.
    pub free: Free,
    /// Free bytes that others have reserved.
    pub reserved: Reserved,
}

/// Bytes that are not in use; `None` if the number is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free(pub Option<u64>);

/// Free bytes that others have reserved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reserved {
    bytes: u64,
    holders: Vec<String>,
}

impl Resource {
    /// Whether it is memory of a GPU.
    pub fn is_of_gpu(self) -> bool {
        matches!(self, Self::Gpu(_))
    }
}

impl Amounts {
    /// The bytes of one resource.
    pub(crate) fn of(&self, resource: Resource) -> u64 {
        self.0.get(&resource).copied().unwrap_or(0)
    }

    /// Whether nothing is reserved.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the amounts of the same resources.
    pub(super) fn replace(&mut self, others: &Self) {
        self.0.extend(&others.0);
        self.0.retain(|_, bytes| *bytes > 0);
    }

    /// Keeps only some of the resources.
    pub(super) fn retain(&mut self, is_kept: impl Fn(Resource) -> bool) {
        self.0.retain(|resource, _| is_kept(*resource));
    }
}

/// Returns the first of the wanted amounts that does not fit into `free` beside all that others
/// have reserved. If a resource is not in `free`, an amount fits if no other operation has reserved
/// any, or if it is `held` already.
///
/// An amount that is reserved and already taken counts twice, since it is not free any more. That
/// is the safe side, and lasts only until it is released.
pub(super) fn short(
    wanted: &Amounts,
    free: &Amounts,
    held: &Amounts,
    others: &[Entry],
) -> Option<Short> {
    let lacks = |(resource, wanted): (&Resource, &u64)| {
        let reserved = Reserved::of(*resource, others);
        let free = free.0.get(resource).copied();
        let fits = match free {
            Some(free) => free.saturating_sub(reserved.bytes) >= *wanted,
            None => reserved.bytes == 0 || held.of(*resource) >= *wanted,
        };
        (!fits).then_some(Short {
            resource: *resource,
            wanted: *wanted,
            free: Free(free),
            reserved,
        })
    };
    wanted.0.iter().find_map(lacks)
}

impl Reserved {
    fn of(resource: Resource, others: &[Entry]) -> Self {
        let mut reserved = Self::default();
        for entry in others {
            let bytes = entry.amounts.of(resource);
            if bytes > 0 {
                reserved.bytes = reserved.bytes.saturating_add(bytes);
                let Entry { container, pid, .. } = entry;
                reserved
                    .holders
                    .push(format!("{container} (process {pid})"));
            }
        }
        reserved
    }
}

impl Short {
    /// Whether there is room once the operations of the others have ended.
    pub(super) fn is_for_reservations_only(&self) -> bool {
        self.free.0.is_none_or(|free| free >= self.wanted)
    }
}

impl fmt::Display for Free {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{} MiB", bytes >> 20),
            None => f.write_str("an unknown amount"),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(uuid) => write!(f, "{uuid}"),
            Self::HostMemory => f.write_str("the host"),
            Self::Contents => f.write_str("the memory for GPU contents"),
        }
    }
}

/// Text behind the free bytes.
impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holders.is_empty() {
            return Ok(());
        }
        write!(
            f,
            ", of which operations on {} have reserved {} MiB",
            self.holders.join(", "),
            self.bytes.div_ceil(1 << 20)
        )
    }
}

impl FromIterator<(Resource, u64)> for Amounts {
    fn from_iter<T: IntoIterator<Item = (Resource, u64)>>(amounts: T) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl From<Vec<(Resource, u64)>> for Amounts {
    fn from(amounts: Vec<(Resource, u64)>) -> Self {
        amounts.into_iter().collect()
    }
}

impl From<Amounts> for Vec<(Resource, u64)> {
    fn from(amounts: Amounts) -> Self {
        amounts.0.into_iter().collect()
    }
}

impl From<&GpuBytes> for Amounts {
    fn from(bytes: &GpuBytes) -> Self {
        let bytes = bytes.iter();
        bytes
            .map(|(uuid, bytes)| (Resource::Gpu(*uuid), *bytes))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Resource = Resource::Gpu(GpuUuid::from_bytes([1; 16]));

    fn amounts(amounts: &[(Resource, u64)]) -> Amounts {
        amounts.iter().copied().collect()
    }

    fn entry(container: &str, amounts: Amounts) -> Entry {
        Entry {
            container: container.to_owned(),
            pid: 7,
            record: None,
            amounts,
        }
    }

    fn short_of(wanted: &Amounts, free: &Amounts, others: &[Entry]) -> Option<Short> {
        short(wanted, free, &Amounts::default(), others)
    }

    #[test]
    fn of_what_nothing_is_known_one_at_a_time_gets_some() {
        let others = [entry("a", amounts(&[(GPU, 1)]))];
        let [wanted, less, free] = [&[(GPU, 30)][..], &[(GPU, 29)], &[]].map(amounts);
        assert_eq!(short(&wanted, &free, &free, &[]), None);
        let later = short(&wanted, &free, &less, &others).unwrap();
        assert!(later.is_for_reservations_only());
        assert_eq!(short(&wanted, &free, &wanted, &others), None, "its own");
    }

    #[test]
    fn what_others_have_reserved_is_not_free() {
        let others = [
            entry("a", amounts(&[(GPU, 30)])),
            entry("b", amounts(&[(GPU, 20), (Resource::HostMemory, 5)])),
        ];
        let free = amounts(&[(GPU, 80), (Resource::HostMemory, 10)]);
        let fits = |wanted: &[(Resource, u64)]| short_of(&amounts(wanted), &free, &others);
        assert_eq!(fits(&[(GPU, 30), (Resource::HostMemory, 5)]), None);
        assert_eq!(fits(&[(Resource::Contents, 1000)]), None, "not known");
        let later = fits(&[(GPU, 80)]).unwrap();
        assert!(later.is_for_reservations_only());
        assert_eq!(later.reserved.bytes, 50);
        assert!(!fits(&[(GPU, 81)]).unwrap().is_for_reservations_only());
        let host = fits(&[(GPU, 1), (Resource::HostMemory, 6)]).unwrap();
        assert_eq!(
            (host.resource, host.free.0),
            (Resource::HostMemory, Some(10))
        );
        let text = host.reserved.to_string();
        assert_eq!(
            text,
            ", of which operations on b (process 7) have reserved 1 MiB"
        );
    }

    #[test]
    fn more_than_there_can_be_is_only_too_much() {
        let others = [
            entry("a", amounts(&[(GPU, u64::MAX)])),
            entry("b", amounts(&[(GPU, u64::MAX)])),
        ];
        let short = short_of(&amounts(&[(GPU, 1)]), &amounts(&[(GPU, 80)]), &others);
        assert_eq!(short.unwrap().reserved.bytes, u64::MAX);
    }
}
