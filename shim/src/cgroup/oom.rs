//! The kernel's notifications that a container ran out of memory.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cgroup::Cgroup;
use crate::cgroup::stats::each_pair;

#[cfg(test)]
mod tests;

/// Watches one cgroup, without a thread of its own. Drop it when the container has ended: on v2 the
/// kernel does not notify that a cgroup is removed (see [`OomWatch::next`]).
#[derive(Debug)]
pub(crate) struct OomWatch {
    /// The cgroup's directory; on v1, that of the memory controller.
    directory: PathBuf,
    source: Source,
}

#[derive(Debug)]
enum Source {
    V1 {
        eventfd: AsyncFd<OwnedFd>,
        ended: bool,
    },
    V2 {
        inotify: AsyncFd<OwnedFd>,
        /// The number of kills that [`OomWatch::next`] has reported.
        kills: u64,
    },
}

impl OomWatch {
    /// Starts to watch a cgroup. Must be called in a tokio runtime with I/O.
    ///
    /// On v2 kills from before the start count, too, as they do for containerd: a container may run
    /// out of memory before its shim gets here. On v1 the kernel notifies of later ones only, so
    /// start the watch before the container.
    ///
    /// # Errors
    ///
    /// `NotFound` if the memory controller is not enabled for the cgroup, or the cgroup is gone;
    /// otherwise the system call's error.
    pub(crate) fn start(cgroup: &Cgroup) -> io::Result<Self> {
        let Some(directory) = cgroup.path_of("memory") else {
            let message = "the cgroup has no memory controller";
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        };
        let source = match cgroup {
            Cgroup::V1(_) => start_v1(directory)?,
            Cgroup::V2(_) => start_v2(directory)?,
        };
        Ok(Self {
            directory: directory.to_owned(),
            source,
        })
    }

    /// Waits until the container runs out of memory. One return may stand for several times. `None`
    /// means that there will be no more: on v1 the cgroup was removed, on v2 no process is left in
    /// it. A cancelled call loses no notification.
    ///
    /// On v2 the kernel notifies of a file at most every 10 ms, and drops the delayed notification
    /// if the cgroup is removed before (`cgroup_file_notify` in kernel/cgroup/cgroup.c). So for a
    /// container that starts and is removed within that time this may wait for ever.
    ///
    /// # Errors
    ///
    /// The kernel's notices cannot be read.
    pub(crate) async fn next(&mut self) -> io::Result<Option<()>> {
        match &mut self.source {
            Source::V1 { ended: true, .. } => Ok(None),
            Source::V1 { eventfd, ended } => {
                let mut notices = [0; size_of::<u64>()];
                read(eventfd, &mut notices).await?;
                let outcome = classify_v1(u64::from_ne_bytes(notices), self.directory.exists());
                *ended = outcome != V1Notice::Oom;
                Ok((outcome != V1Notice::Removed).then_some(()))
            }
            Source::V2 { inotify, kills } => loop {
                // Read before waiting: the kernel does not notify again of earlier changes.
                match read_v2(&self.directory, kills) {
                    V2State::Killed => return Ok(Some(())),
                    V2State::Ended => return Ok(None),
                    V2State::Quiet => {}
                }
                // All events mean "read the files again", so a batch of them is one.
                read(inotify, &mut [0; 1024]).await?;
            },
        }
    }

    /// Returns whether the container ran out of memory since [`OomWatch::next`] last reported it,
    /// without waiting. Once a process has ended, the reason is known: the kernel counts and
    /// notifies before it sends the signal.
    pub(crate) fn look(&mut self) -> io::Result<bool> {
        match &mut self.source {
            Source::V1 { ended: true, .. } => Ok(false),
            Source::V1 { eventfd, .. } => {
                let mut notices = [0; size_of::<u64>()];
                match rustix::io::read(&*eventfd, &mut notices) {
                    Err(Errno::AGAIN) => return Ok(false),
                    read => read?,
                };
                let outcome = classify_v1(u64::from_ne_bytes(notices), self.directory.exists());
                Ok(outcome != V1Notice::Removed)
            }
            Source::V2 { kills, .. } => Ok(read_v2(&self.directory, kills) == V2State::Killed),
        }
    }
}

/// Documentation/admin-guide/cgroup-v1/memory.rst, section 10: an eventfd is registered by writing
/// its number and that of the open memory.oom_control, which need not stay open.
fn start_v1(directory: &Path) -> io::Result<Source> {
    let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = directory.join("memory.oom_control");
    let oom = File::open(&control).map_err(|error| at(&control, &error))?;
    let registry = directory.join("cgroup.event_control");
    let line = format!("{} {}", eventfd.as_raw_fd(), oom.as_raw_fd());
    fs::write(&registry, line).map_err(|error| at(&registry, &error))?;
    Ok(Source::V1 {
        eventfd: readable(eventfd)?,
        ended: false,
    })
}

/// Documentation/admin-guide/cgroup-v2.rst: a change of memory.events, and of "populated" in
/// cgroup.events, is a file modified event.
fn start_v2(directory: &Path) -> io::Result<Source> {
    let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    for name in ["memory.events", "cgroup.events"] {
        let path = directory.join(name);
        inotify::add_watch(&inotify, &path, inotify::WatchFlags::MODIFY)
            .map_err(|error| at(&path, &error.into()))?;
    }
    Ok(Source::V2 {
        inotify: readable(inotify)?,
        kills: 0,
    })
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot watch {}: {error}", path.display()),
    )
}

#[expect(
    deprecated,
    reason = "the safe constructors are deprecated for types that do not own their descriptor \
              (tokio #8587); an OwnedFd does, and the constructor in their place is unsafe"
)]
fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

async fn read(descriptor: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<usize> {
    descriptor
        .async_io(Interest::READABLE, |descriptor| {
            Ok(rustix::io::read(descriptor, &mut *buffer)?)
        })
        .await
}

/// The meaning of an eventfd's signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum V1Notice {
    Oom,
    LastOom,
    Removed,
}

/// The kernel also signals once when the cgroup is removed, after its directory is gone
/// (`memcg_event_remove` in mm/memcontrol-v1.c). So, as in containerd, a missing directory means
/// that one of the signals was the removal, and any others were for lack of memory.
///
/// The signal comes before the kill, so the oom_kill counter cannot confirm it. containerd takes
/// every signal for an OOM, too.
fn classify_v1(notices: u64, exists: bool) -> V1Notice {
    match (notices, exists) {
        (_, true) => V1Notice::Oom,
        (0 | 1, false) => V1Notice::Removed,
        (_, false) => V1Notice::LastOom,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum V2State {
    Killed,
    Quiet,
    Ended,
}

/// Reads cgroup.events before memory.events: the kernel counts a kill before it sends the signal
/// (`__oom_kill_process` in mm/oom_kill.c), so once no process is left the count is final. In the
/// other order the last kill could fall in between.
fn read_v2(directory: &Path, kills: &mut u64) -> V2State {
    let mut populated = false;
    each_pair(directory, "cgroup.events", |key, value| {
        populated |= key == "populated" && value != 0;
    });
    let mut now = 0;
    each_pair(directory, "memory.events", |key, value| {
        if key == "oom_kill" {
            now = value;
        }
    });
    if now > *kills {
        *kills = now;
        V2State::Killed
    } else if populated {
        V2State::Quiet
    } else {
        V2State::Ended
    }
}
