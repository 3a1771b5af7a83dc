//! Operations on a container, and where they leave it.

use std::fmt;

use fastrand::Rng;

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// A checkpoint that ends the container.
    Checkpoint,
    /// A checkpoint after which it goes on.
    LeaveRunning,
    /// A checkpoint of the container that its caller has paused.
    Paused,
    /// The caller's resume after that.
    Resume,
    /// A restore.
    Restore,
    /// The operator frees the GPU.
    Suspend,
    /// The operator gives the GPU back.
    Wake,
    /// Its caller stops it, which saves it.
    Stop,
    /// Its caller creates the next one, which begins with the newest image.
    Create,
    /// Its caller starts the created one.
    Start,
}

/// How a container is between two operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It runs, with its GPU.
    Runs,
    /// Paused, with its GPU contents where the last checkpoint has left them.
    Paused,
    /// The operator has freed its GPU.
    Suspended,
    /// It runs, and its keeper waits for room for its GPU contents.
    Waits,
    /// It has ended, and this image has it.
    Ended(String),
    /// It has ended, and the next one is to be created.
    Stopped,
    /// The next one is created, and not started.
    Created,
}

impl Place {
    /// Whether it goes on by itself: the GPU may have room for it at any moment.
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Runs | Self::Waits)
    }
}

impl Verb {
    /// The operations of every container.
    pub const ALL: [Self; 7] = [
        Self::Checkpoint,
        Self::LeaveRunning,
        Self::Paused,
        Self::Resume,
        Self::Restore,
        Self::Suspend,
        Self::Wake,
    ];

    /// Draws an operation that makes sense there.
    pub fn any(random: &mut Rng, place: &Place) -> Self {
        match place {
            Place::Runs => {
                let all = [
                    Self::Checkpoint,
                    Self::LeaveRunning,
                    Self::Paused,
                    Self::Suspend,
                ];
                all[random.usize(..all.len())]
            }
            Place::Paused => Self::Resume,
            Place::Suspended => Self::Wake,
            Place::Waits => [Self::Checkpoint, Self::LeaveRunning][random.usize(..2)],
            Place::Ended(_) => Self::Restore,
            Place::Stopped => Self::Create,
            Place::Created => Self::Start,
        }
    }

    /// Draws an operation of a container that is saved at its stops.
    pub fn any_with_stops(random: &mut Rng, place: &Place) -> Self {
        match (place, random.u32(..6)) {
            (Place::Runs, 0) => Self::LeaveRunning,
            (Place::Runs, 1) => Self::Suspend,
            (Place::Runs | Place::Waits, _) | (Place::Suspended, 0..3) => Self::Stop,
            _ => Self::any(random, place),
        }
    }

    /// The operations that bring a running container to where this one begins.
    #[must_use]
    pub fn before(self) -> Option<Self> {
        match self {
            Self::Resume => Some(Self::Paused),
            Self::Restore => Some(Self::Checkpoint),
            Self::Wake => Some(Self::Suspend),
            Self::Create => Some(Self::Stop),
            Self::Start => Some(Self::Create),
            Self::Checkpoint | Self::LeaveRunning | Self::Paused | Self::Suspend | Self::Stop => {
                None
            }
        }
    }

    /// Whether it makes an image.
    #[must_use]
    pub fn makes_image(self) -> bool {
        use Verb::{Checkpoint, LeaveRunning, Paused, Stop};
        matches!(self, Checkpoint | LeaveRunning | Paused | Stop)
    }

    /// Whether CRIU has a part in it.
    #[must_use]
    pub fn has_criu(self) -> bool {
        self.makes_image() || matches!(self, Self::Restore | Self::Create)
    }

    /// Its name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::LeaveRunning => "checkpoint --leave-running",
            Self::Paused => "checkpoint of a paused container",
            Self::Resume => "resume",
            Self::Restore => "restore",
            Self::Suspend => "suspend",
            Self::Wake => "end of a suspend",
            Self::Stop => "stop",
            Self::Create => "create",
            Self::Start => "start",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
