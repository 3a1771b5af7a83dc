//! NVIDIA devices that a forked child has inherited.
//!
//! A child that was forked after its parent began with CUDA and never exec'd anything (for example
//! PyTorch's DataLoader workers) has the parent's descriptors and mappings of `/dev/nvidia*`. It
//! cannot use CUDA: the driver returns NOT_INITIALIZED for it. But it keeps those references even
//! when the driver has closed the parent's, and CRIU can dump neither ("Can't handle non-regular
//! mapping"). So stasis replaces each descriptor by one of `/dev/null` and each mapping by private
//! memory at the same address: code that still closes or touches one (a destructor at the child's
//! end) does no harm and affects no other process.
//!
//! Such a child is known by an open file that it shares with its parent. The driver closes the
//! parent's in a GPU checkpoint and opens others in a GPU restore, so nothing is shared any more
//! after the first GPU checkpoint: the devices must be replaced before it, and an interruption must
//! leave a child that shares a descriptor, or has none (`replace.rs`).
//!
//! A child that has the memory or the descriptor table of its parent, as after vfork(2) before its
//! exec, keeps its devices: replacing them would replace the parent's. The driver returns
//! NOT_INITIALIZED for it, too (measured on driver 580.159.04), and CRIU dumps no such process.

mod replace;
mod replacer;

use std::fmt;
use std::io;

use stasis_gpu::cuda::{CudaError, Driver};
use stasis_host::deadline::{PROC, within};
use stasis_linux::process::kcmp::{same_file, shares_memory_or_descriptors};
use stasis_linux::{ProcessRef, Snapshot};

use replace::{Descriptor, InheritedDevices, Replaced};

pub(crate) use replacer::Replacer;

/// Why a child keeps the devices that it has inherited, so that CRIU could not dump it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InheritedDevicesError {
    #[error("cannot find out which processes have inherited NVIDIA devices")]
    Unreadable(#[source] io::Error),
    #[error(
        "process {pid} ({name}) was forked by a CUDA process, and its inherited NVIDIA devices, \
         which criu cannot dump, cannot be taken from it"
    )]
    Kept {
        pid: i32,
        name: String,
        source: io::Error,
    },
}

/// The replaced devices of one process, for the log.
#[derive(Debug)]
pub(crate) struct ReplacedDevices {
    process: String,
    replaced: Replaced,
}

/// Has the processes of a snapshot give up devices that they have inherited from one of `members`,
/// the CUDA processes among them, which are locked and keep their devices. Any other process keeps
/// devices of its own: it may be just starting to use CUDA.
///
/// # Errors
/// The first process for which that fails. Devices that were replaced by then were of no use to
/// their processes.
pub(crate) fn give_up(
    driver: &dyn Driver,
    members: &[ProcessRef],
    snapshot: io::Result<Snapshot>,
) -> Result<Vec<ReplacedDevices>, InheritedDevicesError> {
    let candidates = snapshot
        .map_err(InheritedDevicesError::Unreadable)?
        .into_candidates();
    let of_members = members.to_vec();
    let found = within(PROC, move || holders_among(candidates, &of_members));
    let mut holders =
        found.map_err(|overdue| InheritedDevicesError::Unreadable(overdue.into()))??;
    // A process that can use CUDA after all keeps its devices, and CRIU reports the error.
    holders.retain(|process| driver.state(process) == Err(CudaError::NotInitialized));
    let Some(first) = holders.first() else {
        return Ok(Vec::new());
    };
    let answers = replacer::replace_all(&holders).map_err(|error| kept(first, error))?;
    let mut all_replaced = Vec::new();
    for (process, answer) in holders.iter().zip(answers) {
        // A process that has ended has none.
        if let Some(replaced) = answer.map_err(|error| kept(process, io::Error::other(error)))? {
            let process = process.to_string();
            all_replaced.push(ReplacedDevices { process, replaced });
        }
    }
    Ok(all_replaced)
}

fn holders_among(
    candidates: Vec<ProcessRef>,
    members: &[ProcessRef],
) -> Result<Vec<ProcessRef>, InheritedDevicesError> {
    let mut holders = Vec::new();
    for process in candidates {
        let is_member = members.iter().any(|member| member.pid() == process.pid());
        if !is_member && has_inherited(&process, members).map_err(|error| kept(&process, error))? {
            holders.push(process);
        }
    }
    Ok(holders)
}

/// fork(2) keeps the numbers of descriptors. A process with mappings but no descriptor of a device
/// has closed the inherited ones: mapping a device needs a descriptor.
fn has_inherited(process: &ProcessRef, members: &[ProcessRef]) -> io::Result<bool> {
    let InheritedDevices {
        descriptors,
        mappings,
    } = InheritedDevices::of(process)?;
    if descriptors.is_empty() && mappings.is_empty() {
        return Ok(false);
    }
    for member in members {
        if shares_memory_or_descriptors(process, member)? {
            return Ok(false);
        }
    }
    if descriptors.is_empty() {
        return Ok(true);
    }
    for Descriptor { number, .. } in descriptors {
        for member in members {
            if same_file((process, number), (member, number))? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn kept(process: &ProcessRef, source: io::Error) -> InheritedDevicesError {
    InheritedDevicesError::Kept {
        pid: process.pid(),
        name: process.name().to_owned(),
        source,
    }
}

impl fmt::Display for ReplacedDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} gave up {} descriptors and {} mappings of NVIDIA devices that it had inherited and \
             could not use",
            self.process, self.replaced.descriptors, self.replaced.mappings
        )
    }
}
