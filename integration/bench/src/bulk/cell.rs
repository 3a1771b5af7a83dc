//! What is measured: so much memory with such contents, taken by such a system.

use std::fmt;

use crate::options;

/// What memory is filled with; names of the workload's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contents {
    Random,
    HalfZero,
    Weights,
}

pub(crate) const CONTENTS: [Contents; 3] =
    [Contents::Random, Contents::HalfZero, Contents::Weights];

impl Contents {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::HalfZero => "half-zero",
            Self::Weights => "weights",
        }
    }
}

/// Where stasis puts memory; names of the settings'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Portable,
    Ram,
    Disk,
}

impl Tier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Ram => "ram",
            Self::Disk => "disk",
        }
    }
}

/// What takes checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// runc and CRIU, images on a plain tmpfs.
    PlainTmpfs,
    /// The same with the pages that stasis has: huge ones on the tmpfs, and the machine's switch on
    /// "always" meanwhile.
    PlainHuge,
    /// The same with images on the disk.
    PlainDisk,
    /// Stasis with so many threads; 0: as many as it likes.
    Stasis { tier: Tier, threads: u32 },
}

pub(crate) const SYSTEMS: [System; 9] = [
    System::PlainTmpfs,
    System::PlainHuge,
    System::Stasis {
        tier: Tier::Portable,
        threads: 1,
    },
    System::Stasis {
        tier: Tier::Portable,
        threads: 0,
    },
    System::Stasis {
        tier: Tier::Ram,
        threads: 1,
    },
    System::Stasis {
        tier: Tier::Ram,
        threads: 0,
    },
    System::PlainDisk,
    System::Stasis {
        tier: Tier::Disk,
        threads: 1,
    },
    System::Stasis {
        tier: Tier::Disk,
        threads: 0,
    },
];

impl System {
    /// Whether images, or the store, are on the disk.
    pub(crate) fn is_on_disk(self) -> bool {
        matches!(
            self,
            Self::PlainDisk
                | Self::Stasis {
                    tier: Tier::Disk,
                    ..
                }
        )
    }

    /// The place in [`SYSTEMS`] of what it is compared with.
    pub(crate) fn baseline(self) -> usize {
        let plain = if self.is_on_disk() {
            Self::PlainDisk
        } else {
            Self::PlainTmpfs
        };
        let place = SYSTEMS.iter().position(|system| *system == plain);
        place.unwrap_or_default()
    }
}

impl fmt::Display for System {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PlainTmpfs => write!(formatter, "CRIU, tmpfs"),
            Self::PlainHuge => write!(formatter, "CRIU, tmpfs, THP always, huge=always"),
            Self::PlainDisk => write!(formatter, "CRIU, disk"),
            Self::Stasis { tier, threads: 1 } => write!(formatter, "{}, 1 thread", tier.name()),
            Self::Stasis { tier, threads: 0 } => write!(formatter, "{}, all cores", tier.name()),
            Self::Stasis { tier, threads } => {
                write!(formatter, "{}, {threads} threads", tier.name())
            }
        }
    }
}

/// One thing that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) gib: u64,
    pub(crate) contents: Contents,
    pub(crate) system: System,
}

impl Cell {
    pub(crate) fn mib(&self) -> u64 {
        self.gib * options::get().mib_per_gib
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.mib() << 20
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            contents, system, ..
        } = self;
        write!(
            formatter,
            "{} MiB {}, {system}",
            self.mib(),
            contents.name()
        )
    }
}
