//! How long an operation waits: for locks, the driver, NVML, other programs and disks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[deadlines]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deadlines {
    /// Milliseconds for locking all CUDA processes of a container.
    pub lock_ms: u32,
    /// Seconds for a driver call that moves GPU contents or unlocks.
    pub driver_s: u32,
    /// Seconds for reading the GPUs from NVML.
    pub nvml_s: u32,
    /// Seconds for which an operation waits for memory that others have.
    pub room_s: u32,
    /// Seconds for which a program or a disk may do nothing.
    pub stalled_s: u32,
    /// Seconds for which containers that are checkpointed together wait for each other at a step.
    pub group_s: u32,
    /// Seconds after which the shim resumes a container that was paused for a checkpoint whose
    /// caller has gone; 0 is never.
    pub resume_s: u32,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            lock_ms: 10_000,
            driver_s: 600,
            nvml_s: 30,
            room_s: 30,
            stalled_s: 300,
            group_s: 1800,
            resume_s: 60,
        }
    }
}

impl Deadlines {
    /// For the whole job.
    pub fn lock(&self) -> Duration {
        Duration::from_millis(self.lock_ms.into())
    }

    /// For a driver call that moves GPU contents or unlocks.
    pub fn driver(&self) -> Duration {
        Duration::from_secs(self.driver_s.into())
    }

    /// For reading the GPUs from NVML.
    pub fn nvml(&self) -> Duration {
        Duration::from_secs(self.nvml_s.into())
    }

    /// For memory that others have.
    pub fn room(&self) -> Duration {
        Duration::from_secs(self.room_s.into())
    }

    /// For a program or a disk that does nothing.
    pub fn stalled(&self) -> Duration {
        Duration::from_secs(self.stalled_s.into())
    }

    /// For containers that wait for each other.
    pub fn group(&self) -> Duration {
        Duration::from_secs(self.group_s.into())
    }

    /// For the resume of a container whose checkpoint's caller has gone, if it is resumed at all.
    pub fn resume(&self) -> Option<Duration> {
        (self.resume_s > 0).then(|| Duration::from_secs(self.resume_s.into()))
    }

    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let day = (1..=86_400, "must be between 1 and 86400");
        let up_to_day = (0..=86_400, "must be at most 86400");
        let hour = (1..=3600, "must be between 1 and 3600");
        let up_to_hour = (0..=3600, "must be at most 3600");
        let hour_in_ms = (1..=3_600_000, "must be between 1 and 3600000");
        let mut rules = [
            ("deadlines.lock_ms", self.lock_ms, hour_in_ms),
            ("deadlines.driver_s", self.driver_s, day.clone()),
            ("deadlines.nvml_s", self.nvml_s, hour),
            ("deadlines.room_s", self.room_s, up_to_hour),
            ("deadlines.stalled_s", self.stalled_s, day.clone()),
            ("deadlines.group_s", self.group_s, day),
            ("deadlines.resume_s", self.resume_s, up_to_day),
        ]
        .into_iter();
        let broken = rules.find(|(_, value, (sane, _))| !sane.contains(value));
        broken.map_or(Ok(()), |(key, _, (_, rule))| Err((key, rule)))
    }
}
