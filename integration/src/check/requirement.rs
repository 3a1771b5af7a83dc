//! The requirements of cases on the machine, and the cases that a machine has to run.
//!
//! A case that lacks something is left out, and reports this where nothing hides it: on standard
//! error past the test harness, and in the file that `STASIS_LEFT_OUT` names. The case fails
//! instead where the machine has what the case lacked, or where `STASIS_MUST_RUN` asks for it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::check::left_out::say_left_out;

/// A capability that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// Cgroups of version 1, for hosts that have both versions.
    HybridCgroups,
    /// The memory controller, in the hierarchy of version 1.
    MemoryControllerV1,
    /// The memory controller, in the hierarchy of version 2.
    MemoryControllerV2,
    /// Cgroups of version 2 alone.
    OnlyCgroupsV2,
    /// io_uring in containers.
    IoUring,
    /// The stand-in for the driver, whose failures and whose machine can be chosen.
    StandIn,
    /// Two GPUs, real ones or the stand-in's.
    TwoGpus,
    /// Our own shim, rather than containerd's.
    OurShim,
    /// The program crictl, which `STASIS_CRICTL` names.
    Crictl,
}

impl Requirement {
    /// All of them, in the order of the words in `STASIS_MUST_RUN`.
    pub const ALL: [Self; 9] = [
        Self::HybridCgroups,
        Self::MemoryControllerV1,
        Self::MemoryControllerV2,
        Self::OnlyCgroupsV2,
        Self::IoUring,
        Self::StandIn,
        Self::TwoGpus,
        Self::OurShim,
        Self::Crictl,
    ];

    /// Its word in `STASIS_MUST_RUN` and in messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::HybridCgroups => "hybrid-cgroups",
            Self::MemoryControllerV1 => "memory-controller-v1",
            Self::MemoryControllerV2 => "memory-controller-v2",
            Self::OnlyCgroupsV2 => "only-cgroups-v2",
            Self::IoUring => "io-uring",
            Self::StandIn => "stand-in",
            Self::TwoGpus => "two-gpus",
            Self::OurShim => "our-shim",
            Self::Crictl => "crictl",
        }
    }

    /// Whether this machine has it, as its kernel says, not as test hosts and containers see it.
    pub fn is_met(self) -> Result<bool> {
        match self {
            Self::HybridCgroups => has_version_1(),
            Self::OnlyCgroupsV2 => Ok(!has_version_1()?),
            Self::MemoryControllerV1 => {
                // Name, hierarchy (0: version 2 or none), number of cgroups, enabled.
                let controllers = read("/proc/cgroups")?;
                let memory = controllers
                    .lines()
                    .find(|line| line.starts_with("memory\t"));
                let hierarchy = memory.and_then(|line| line.split_whitespace().nth(1));
                Ok(hierarchy.is_some_and(|hierarchy| hierarchy != "0"))
            }
            Self::MemoryControllerV2 => {
                let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
                let files = roots.map(|root| root.join("cgroup.controllers"));
                let controllers = files.iter().find_map(|file| fs::read_to_string(file).ok());
                let controllers = controllers.unwrap_or_default();
                Ok(controllers.split_whitespace().any(|name| name == "memory"))
            }
            // Since Linux 6.6; 0: everybody may use it.
            Self::IoUring => Ok(read("/proc/sys/kernel/io_uring_disabled")
                .is_ok_and(|disabled| disabled.trim() == "0")),
            Self::StandIn => Ok(!has_gpu()),
            Self::TwoGpus => Ok(!has_gpu() || Path::new("/dev/nvidia1").exists()),
            Self::OurShim => Ok(std::env::var("STASIS_TEST_SHIM").is_err()),
            Self::Crictl => Ok(std::env::var_os("STASIS_CRICTL").is_some()),
        }
    }
}

/// Whether this machine has a GPU: then its own driver is used instead of the stand-in.
#[must_use]
pub fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// Leaves a case out for want of something: says so, and succeeds.
pub fn leave_out(case: &str, lacks: Requirement) -> Result<()> {
    let word = lacks.word();
    if lacks.is_met()? {
        bail!("{case} found no {word}, but this machine has it: it had to run");
    }
    let asked = std::env::var("STASIS_MUST_RUN").unwrap_or_default();
    if asked.split_whitespace().any(|asked| asked == word) {
        bail!("{case} needs {word}, which this machine lacks and STASIS_MUST_RUN asks for");
    }
    Ok(say_left_out(case, &format!("this machine has no {word}"))?)
}

/// Leaves the rest of a test out unless the machine meets a requirement: `needs!(StandIn)`.
#[macro_export]
macro_rules! needs {
    ($requirement:ident) => {
        let requirement = $crate::check::requirement::Requirement::$requirement;
        if !requirement.is_met()? {
            let test = std::thread::current();
            let case = format!("{} ({}:{})", test.name().unwrap_or("?"), file!(), line!());
            return $crate::check::requirement::leave_out(&case, requirement);
        }
    };
}

fn has_version_1() -> Result<bool> {
    let mounts = read("/proc/mounts")?;
    let version_1 = |line: &str| line.split(' ').nth(2) == Some("cgroup");
    Ok(mounts.lines().any(version_1))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {path}"))
}
