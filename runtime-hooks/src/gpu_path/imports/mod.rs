//! GPU memory of one process that another one has imported, as the ranks of NCCL do of each other.
//!
//! The driver restores a process with imports not at all (801, driver 580.159). So they are given
//! up while all processes are LOCKED ([`give_up`]), and made again, at the same addresses and with
//! the same rights, once all are LOCKED again ([`share_again`]). Which allocation an import is of
//! was found in their survey. All of it is done by the drivers' checkpoint threads.
//!
//! # If we are killed
//! What is given up is recorded before, in the operation's directory. Nobody of these processes is
//! unlocked before all is made again ([`super::CopyingDriver`]), whoever asks for it, and when; a
//! process whose memory was shared and that has ended meanwhile is the loss of who shared it.

mod give_up;
mod record;
mod share_again;
mod visit;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::{Import, Place};

use crate::cuda::process_set::as_found::ProcessId;

pub use give_up::GiveUp;
pub(crate) use record::write as expect;
pub(super) use record::{forget, read, write};
pub use share_again::ShareAgain;
pub use visit::Asked;
pub(super) use visit::{Visit, at_the_same_time, visit_all};

/// An allocation that two processes share, both of which are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Who has imported it.
    pub importer: ProcessId,
    /// Where, and how.
    pub import: Import,
    /// Whose it is.
    pub owner: ProcessId,
    /// Where that has it.
    pub owned_at: OwnedAt,
}

/// A place in GPU memory, and the number of a device of its process that may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedAt {
    /// The address.
    pub address: u64,
    /// The device.
    pub device: u64,
}

impl From<OwnedAt> for Place {
    fn from(OwnedAt { address, device }: OwnedAt) -> Self {
        Self { address, device }
    }
}

impl Share {
    /// The importer's place.
    fn place(&self) -> Place {
        let Import {
            address, access, ..
        } = self.import;
        let device = access.trailing_zeros().into();
        Place { address, device }
    }
}
