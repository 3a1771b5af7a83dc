//! Timers of setitimer(2) that had expired, and whose signal was not taken yet.
//!
//! The kernel starts such a timer again with the signal, and until then reports that nothing is
//! left of its period (kernel/signal.c, `dequeue_signal`). CRIU sets no timer of which nothing is
//! left (criu/pie/restorer.c, `itimer_armed`), and no other process can: a note reports it.

use std::path::Path;

use prost::Message;

use crate::image::pstree::{CORE_MAGIC, entries};

/// `core_entry`, as far as it is needed (CRIU's images/core.proto).
#[derive(Message)]
struct CoreEntry {
    #[prost(message, optional, tag = "3")]
    task: Option<TaskCoreEntry>,
}

/// `task_core_entry`, as far as it is needed.
#[derive(Message)]
struct TaskCoreEntry {
    #[prost(message, optional, tag = "7")]
    timers: Option<TaskTimersEntry>,
}

/// `task_timers_entry`: the kernel starts the other two by itself.
#[derive(Message)]
struct TaskTimersEntry {
    #[prost(message, optional, tag = "1")]
    real: Option<ItimerEntry>,
}

/// `itimer_entry`.
#[derive(Message)]
struct ItimerEntry {
    #[prost(uint64, required, tag = "1")]
    period_seconds: u64,
    #[prost(uint64, required, tag = "2")]
    period_microseconds: u64,
    #[prost(uint64, required, tag = "3")]
    left_seconds: u64,
    #[prost(uint64, required, tag = "4")]
    left_microseconds: u64,
}

impl ItimerEntry {
    fn has_expired(&self) -> bool {
        let (period, left) = (
            (self.period_seconds, self.period_microseconds),
            (self.left_seconds, self.left_microseconds),
        );
        period != (0, 0) && left == (0, 0)
    }
}

/// Whether the timer of a process had expired, by its pid in the container; `false` for a process
/// that is not in the image.
pub(super) fn had_expired(image: &Path, pid: i32) -> bool {
    let cores = entries::<CoreEntry>(image, &format!("core-{pid}.img"), CORE_MAGIC);
    let mut tasks = cores.into_iter().flatten().filter_map(|core| core.task);
    tasks.any(|task| {
        let real = task.timers.and_then(|timers| timers.real);
        real.is_some_and(|timer| timer.has_expired())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::image::criu_file::COMMON_MAGIC;

    #[test]
    fn one_without_anything_left_of_its_period_had_expired() {
        let image = tempfile::tempdir().unwrap();
        let path = image.path().join("core-7.img");
        for (period, left, expected) in [(0, 0, false), (5, 2, false), (0, 2, false), (5, 0, true)]
        {
            let real = Some(ItimerEntry {
                period_seconds: 0,
                period_microseconds: period,
                left_seconds: 0,
                left_microseconds: left,
            });
            let timers = Some(TaskTimersEntry { real });
            let task = Some(TaskCoreEntry { timers });
            let core = CoreEntry { task }.encode_to_vec();
            let length = u32::try_from(core.len()).unwrap();
            let head = [COMMON_MAGIC, CORE_MAGIC, length].map(u32::to_ne_bytes);
            fs::write(&path, [&head.concat()[..], &core].concat()).unwrap();
            assert_eq!(had_expired(image.path(), 7), expected, "{period} {left}");
        }
        fs::write(&path, "x").unwrap();
        assert!(!had_expired(image.path(), 7) && !had_expired(image.path(), 8));
    }
}
