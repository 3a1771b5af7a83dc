//! How long an operation waits: for locks, the driver, NVML, other programs and disks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[deadlines]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deadlines {
    /// Milliseconds for locking all CUDA processes of a container.
    pub lock_ms: u32,
    /// Milliseconds for one try on one process.
    pub lock_try_ms: u32,
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
            lock_try_ms: 200,
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
    #[must_use]
    pub fn lock(&self) -> Duration {
        Duration::from_millis(self.lock_ms.into())
    }

    /// For one try on one process.
    #[must_use]
    pub fn lock_try(&self) -> Duration {
        Duration::from_millis(self.lock_try_ms.into())
    }

    /// For a driver call that moves GPU contents or unlocks.
    #[must_use]
    pub fn driver(&self) -> Duration {
        Duration::from_secs(self.driver_s.into())
    }

    /// For reading the GPUs from NVML.
    #[must_use]
    pub fn nvml(&self) -> Duration {
        Duration::from_secs(self.nvml_s.into())
    }

    /// For memory that others have.
    #[must_use]
    pub fn room(&self) -> Duration {
        Duration::from_secs(self.room_s.into())
    }

    /// For a program or a disk that does nothing.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        Duration::from_secs(self.stalled_s.into())
    }

    /// For containers that wait for each other.
    #[must_use]
    pub fn group(&self) -> Duration {
        Duration::from_secs(self.group_s.into())
    }

    /// For the resume of a container whose checkpoint's caller has gone, if it is resumed at all.
    #[must_use]
    pub fn resume(&self) -> Option<Duration> {
        (self.resume_s > 0).then(|| Duration::from_secs(self.resume_s.into()))
    }

    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let sane = 1..=3_600_000;
        if !sane.contains(&self.lock_ms) {
            return Err(("deadlines.lock_ms", "must be between 1 and 3600000"));
        }
        if !(1..=self.lock_ms).contains(&self.lock_try_ms) {
            return Err((
                "deadlines.lock_try_ms",
                "must be between 1 and deadlines.lock_ms",
            ));
        }
        if !(1..=86_400).contains(&self.driver_s) {
            return Err(("deadlines.driver_s", "must be between 1 and 86400"));
        }
        if !(1..=3600).contains(&self.nvml_s) {
            return Err(("deadlines.nvml_s", "must be between 1 and 3600"));
        }
        if self.room_s > 3600 {
            return Err(("deadlines.room_s", "must be at most 3600"));
        }
        if !(1..=86_400).contains(&self.stalled_s) {
            return Err(("deadlines.stalled_s", "must be between 1 and 86400"));
        }
        if !(1..=86_400).contains(&self.group_s) {
            return Err(("deadlines.group_s", "must be between 1 and 86400"));
        }
        if self.resume_s > 86_400 {
            return Err(("deadlines.resume_s", "must be at most 86400"));
        }
        Ok(())
    }
}
