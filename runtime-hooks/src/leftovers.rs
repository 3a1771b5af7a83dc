//! NVIDIA devices that a forked child has inherited.
//!
//! A child that was forked after its parent began with CUDA and never exec'd anything (PyTorch's DataLoader workers are such) has
//! the parent's descriptors and mappings of `/dev/nvidia*`. It cannot use CUDA: the driver says NOT_INITIALIZED to it. But it
//! keeps those references even when the driver has taken the parent's away, and CRIU can dump neither ("Can't handle non-regular
//! mapping"). So it gives them up: each descriptor becomes one of `/dev/null`, each mapping private memory at the same place, so
//! that whoever still closes or touches one (a destructor at the child's end) does no harm and hits nobody else's.

mod held;

use std::fmt;
use std::io;

use crate::container::Container;
use crate::cuda::{CudaError, Driver};
use crate::process::ProcessRef;
use crate::same_file::same_file;
use held::{Descriptor, Leftovers};

/// A child whose leftovers are in the way of a dump.
#[derive(Debug, thiserror::Error)]
#[error(
    "process {pid} ({name}) was forked by a CUDA process, and its inherited NVIDIA devices, which criu cannot dump, cannot be \
     taken from it"
)]
pub struct LeftoversError {
    pid: i32,
    name: String,
    #[source]
    source: io::Error,
}

/// What one process gave up, for the log.
#[derive(Debug)]
pub(crate) struct GivenUp {
    process: String,
    descriptors: usize,
    mappings: usize,
}

/// The processes of a container that hold what they inherited from one of `members`, its CUDA processes; to be asked while those have
/// their devices, and so before the GPU checkpoint.
///
/// A process that begins with CUDA right now has devices, too, and the driver does not know it yet: it shares none with others.
///
/// # Errors
/// What looking at a process said.
pub(crate) fn heirs(
    container: &Container,
    members: &[ProcessRef],
) -> Result<Vec<ProcessRef>, LeftoversError> {
    let mut heirs = Vec::new();
    let processes = container
        .processes()
        .map_err(|error| failed(container.init(), error))?;
    for process in processes {
        let is_member = members.iter().any(|member| member.pid() == process.pid());
        if !is_member
            && has_inherited(&process, members).map_err(|error| failed(&process, error))?
        {
            heirs.push(process);
        }
    }
    Ok(heirs)
}

/// Has every heir give up what it inherited; to be called when the driver has taken all that is the members' own.
///
/// # Errors
/// The first process that cannot be freed of it. What others gave up, they could not use.
pub(crate) fn give_up(
    driver: &dyn Driver,
    heirs: &[ProcessRef],
) -> Result<Vec<GivenUp>, LeftoversError> {
    let mut given_up = Vec::new();
    for process in heirs {
        let leftovers = Leftovers::of(process).map_err(|error| failed(process, error))?;
        // One that can use CUDA after all keeps what it has, and CRIU says what it thinks of that.
        if leftovers.is_empty() || driver.state(process.pid()) != Err(CudaError::NotInitialized) {
            continue;
        }
        match leftovers.replace(process) {
            Err(_) if process.is_gone() => continue,
            other => other.map_err(|error| failed(process, error))?,
        }
        given_up.push(GivenUp::of(process, &leftovers));
    }
    Ok(given_up)
}

/// fork(2) keeps the numbers of descriptors. A process with mappings and no descriptor of a device has closed those it inherited:
/// nobody can have mapped a device without.
fn has_inherited(process: &ProcessRef, members: &[ProcessRef]) -> io::Result<bool> {
    let Leftovers {
        descriptors,
        mappings,
    } = Leftovers::of(process)?;
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

fn failed(process: &ProcessRef, source: io::Error) -> LeftoversError {
    LeftoversError {
        pid: process.pid(),
        name: process.name().to_owned(),
        source,
    }
}

impl GivenUp {
    fn of(process: &ProcessRef, leftovers: &Leftovers) -> Self {
        Self {
            process: process.to_string(),
            descriptors: leftovers.descriptors.len(),
            mappings: leftovers.mappings.len(),
        }
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} gave up {} descriptors and {} mappings of NVIDIA devices that it had inherited and could not use",
            self.process, self.descriptors, self.mappings
        )
    }
}
