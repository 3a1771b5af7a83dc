//! GPU memory of one process that another one has imported, as between ranks of NCCL.
//!
//! The driver cannot restore a process with imports (801, driver 580.159). So they are given up
//! while all processes are LOCKED ([`give_up`]), and made again, at the same addresses and with the
//! same rights, once all are LOCKED again ([`share_again`]). The survey has found the allocation of
//! each import. The drivers' checkpoint threads do all of it.
//!
//! # If we are killed
//! The record is written before anything is given up, in the operation's directory. No caller can
//! unlock any of these processes before all imports are made again ([`super::CopyingDriver`]); if a
//! process whose memory was shared has ended meanwhile, its importers are lost.

mod give_up;
mod hand_over;
mod record;
mod share_again;
mod visit;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::{GpuAddress, Import};

use crate::cuda::process_set::initial_state::ProcessId;

pub use give_up::GiveUp;
pub(super) use hand_over::{AT_ONCE, by_pair, hand_over};
pub(super) use record::{forget, read, write};
pub use record::{is_given_up, write as expect};
pub use share_again::ShareAgain;
pub use visit::Asked;
pub(super) use visit::{Visit, at_the_same_time, visit_all};

/// An allocation that two living processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The process that has imported it.
    pub importer: ProcessId,
    /// The import's address and rights.
    pub import: Import,
    /// The process whose memory it is.
    pub owner: ProcessId,
    /// The allocation's address in the owner.
    pub owned_at: GpuAddress,
}

impl Share {
    /// Whether both are of the same import of a process.
    pub(super) fn is_of_one_mapping(&self, other: &Self) -> bool {
        (self.importer, self.import.address) == (other.importer, other.import.address)
    }

    /// The importer's place.
    fn place(&self) -> GpuAddress {
        let Import {
            address, access, ..
        } = self.import;
        let device = access.trailing_zeros().into();
        GpuAddress { address, device }
    }
}
