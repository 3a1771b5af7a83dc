//! How operations end.

use std::fmt;

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It succeeded.
    Succeeded,
    /// It failed with an error, and the container is as it was.
    FailedAsBefore,
    /// It failed with an error; the container has ended, and its image is whole.
    FailedWithImage,
    /// It was refused, or failed, for want of room on the GPU, and the container is as it was.
    NoRoom,
    /// Its keeper waits for room on the GPU, and the container goes on then.
    WaitsForRoom,
    /// The work on the GPU did not end in time, and the container is as it was.
    NotLocked,
    /// It was killed, and the container is as it was.
    KilledAsBefore,
    /// It was killed, and has done what it was to do.
    KilledWhenDone,
    /// It was not saved, which is reported, and has got its signal, or SIGKILL.
    Signalled,
    /// It was created without an image, which is reported; the images exist.
    Cold,
    /// The driver has lost a process by itself.
    LostByDriver,
    /// CRIU was killed while it held the tasks by ptrace, and they are lost.
    LostByCriu,
}

impl End {
    /// Whether it may end so without a fault: it succeeded, or there was no room on the GPU, or the
    /// machine was so busy that the short deadline of a lock was over.
    #[must_use]
    pub fn needs_no_fault(self) -> bool {
        use End::{NoRoom, NotLocked, Succeeded, WaitsForRoom};
        matches!(self, Succeeded | NoRoom | WaitsForRoom | NotLocked)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::FailedAsBefore => "failed, as before",
            Self::FailedWithImage => "failed, image whole",
            Self::NoRoom => "no room, as before",
            Self::NotLocked => "not locked in time, as before",
            Self::WaitsForRoom => "waits for room",
            Self::KilledAsBefore => "cut off, as before",
            Self::KilledWhenDone => "cut off, done",
            Self::Signalled => "not saved, signal came",
            Self::Cold => "starts cold",
            Self::LostByDriver => "lost by the driver",
            Self::LostByCriu => "lost with CRIU",
        })
    }
}
