//! NVIDIA devices that a forked child has inherited.
//!
//! A child that was forked after its parent began with CUDA and never exec'd anything (PyTorch's
//! DataLoader workers are such) has the parent's descriptors and mappings of `/dev/nvidia*`. It
//! cannot use CUDA: the driver returns NOT_INITIALIZED for it. But it keeps those references even
//! when the driver has closed the parent's, and CRIU can dump neither ("Can't handle non-regular
//! mapping"). So stasis replaces each descriptor by one of `/dev/null` and each mapping by private
//! memory at the same address: code that still closes or touches one (a destructor at the child's
//! end) does no harm and affects no other process.

mod replace;

use std::fmt;
use std::io;

use stasis_linux::ProcessRef;
use stasis_linux::kcmp::same_file;

use crate::container::Container;
use crate::cuda::{CudaError, Driver};
use crate::host::deadline::{PROC, within};
use replace::{Descriptor, InheritedDevices};

/// The inherited devices of a child cannot be replaced, so CRIU could not dump it.
#[derive(Debug, thiserror::Error)]
#[error(
    "process {pid} ({name}) was forked by a CUDA process, and its inherited NVIDIA devices, which \
     criu cannot dump, cannot be taken from it"
)]
pub struct InheritedDevicesError {
    pid: i32,
    name: String,
    #[source]
    source: io::Error,
}

/// The replaced devices of one process, for the log.
#[derive(Debug)]
pub(crate) struct ReplacedDevices {
    process: String,
    descriptors: usize,
    mappings: usize,
}

/// Finds the processes of a container that have inherited devices from one of `members`, its CUDA
/// processes. Call it before the GPU checkpoint, while the members have their devices.
///
/// A process that is just starting to use CUDA has devices, too, and the driver may not know it
/// yet: it shares none with others.
///
/// # Errors
/// An error of reading a process.
pub(crate) fn find_holders(
    container: &Container,
    members: &[ProcessRef],
) -> Result<Vec<ProcessRef>, InheritedDevicesError> {
    let unreadable = |error| failed(container.init(), error);
    let candidates = container.snapshot().map_err(unreadable)?.into_candidates();
    let members = members.to_vec();
    let found = within(PROC, move || holders_among(candidates, &members));
    found.map_err(|overdue| unreadable(overdue.into()))?
}

fn holders_among(
    candidates: Vec<ProcessRef>,
    members: &[ProcessRef],
) -> Result<Vec<ProcessRef>, InheritedDevicesError> {
    let mut holders = Vec::new();
    for process in candidates {
        let is_member = members.iter().any(|member| member.pid() == process.pid());
        if !is_member
            && has_inherited(&process, members).map_err(|error| failed(&process, error))?
        {
            holders.push(process);
        }
    }
    Ok(holders)
}

/// Replaces the inherited devices of every holder. Call it after the GPU checkpoint, when the
/// driver has closed the members' own.
///
/// # Errors
/// The first process for which that fails. Devices replaced by then were of no use to their
/// processes.
pub(crate) fn replace_all(
    driver: &dyn Driver,
    holders: &[ProcessRef],
) -> Result<Vec<ReplacedDevices>, InheritedDevicesError> {
    let mut all_replaced = Vec::new();
    for process in holders {
        let inherited = InheritedDevices::of(process).map_err(|error| failed(process, error))?;
        // A process that can use CUDA after all keeps its devices, and CRIU reports the error.
        if inherited.is_empty() || driver.state(process) != Err(CudaError::NotInitialized) {
            continue;
        }
        match InheritedDevices::replace(process) {
            Err(_) if process.is_gone() => {}
            Err(error) => return Err(failed(process, error)),
            Ok(replaced) => all_replaced.push(ReplacedDevices::of(process, &replaced)),
        }
    }
    Ok(all_replaced)
}

/// fork(2) keeps the numbers of descriptors. A process with mappings but no descriptor of a device
/// has closed the inherited ones: mapping a device needs a descriptor.
fn has_inherited(process: &ProcessRef, members: &[ProcessRef]) -> io::Result<bool> {
    let InheritedDevices {
        descriptors,
        mappings,
    } = InheritedDevices::of(process)?;
    if descriptors.is_empty() {
        return Ok(!mappings.is_empty());
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

fn failed(process: &ProcessRef, source: io::Error) -> InheritedDevicesError {
    InheritedDevicesError {
        pid: process.pid(),
        name: process.name().to_owned(),
        source,
    }
}

impl ReplacedDevices {
    fn of(process: &ProcessRef, inherited: &InheritedDevices) -> Self {
        Self {
            process: process.to_string(),
            descriptors: inherited.descriptors.len(),
            mappings: inherited.mappings.len(),
        }
    }
}

impl fmt::Display for ReplacedDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} gave up {} descriptors and {} mappings of NVIDIA devices that it had inherited and \
             could not use",
            self.process, self.descriptors, self.mappings
        )
    }
}
