//! Sends the driver's thread to look, and collects its answers.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use stasis_injected_survey::{Allocation, Answer, DEVICES, ITEMS, NO_CONTEXT, Read, What};
use stasis_linux::ProcessRef;

use super::errand::{one, request};
use super::error::VisitError;
use super::ranges::ranges;
use super::record::VisitRecord;

/// The most time for all requests: a rank of NCCL has hundreds of GiB of addresses.
const ALL: Duration = Duration::from_secs(15);
/// The most allocations: more than any job has.
const MOST: usize = 1 << 16;

/// The GPU memory of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessGpuMemory {
    /// All allocations of whole 2 MiB, by their addresses, and some smaller ones.
    pub allocations: Vec<Allocation>,
    /// By bits: the devices that have a primary context.
    pub active: u64,
    /// For the context of each device, by bits, the devices that it has peer access to.
    pub peers: [u64; DEVICES],
}

/// Asks for the GPU memory of a process, and between which contexts there is peer access. The
/// process is LOCKED, and stays so.
///
/// # Errors
/// [`VisitError`]. Our code is still to be removed from the process.
pub fn ask(process: &ProcessRef, record: &VisitRecord) -> Result<ProcessGpuMemory, VisitError> {
    let began = Instant::now();
    let words = one(process, record, &request(record, What::Peers, &[]))?;
    let Read { active, peers, .. } = Answer::read(&words);
    let mut found = BTreeMap::new();
    // A context knows the memory that it may use; without any, memory with handles is found.
    let contexts = (0..DEVICES as u64).filter(|device| active & 1 << device != 0);
    let without = (active == 0).then_some(NO_CONTEXT);
    for device in contexts.chain(without) {
        look_all_over(process, record, device, began, &mut found)?;
    }
    Ok(ProcessGpuMemory {
        allocations: found.into_values().collect(),
        active,
        peers,
    })
}

/// Asks about all address ranges.
fn look_all_over(
    process: &ProcessRef,
    record: &VisitRecord,
    device: u64,
    began: Instant,
    found: &mut BTreeMap<u64, Allocation>,
) -> Result<(), VisitError> {
    for ranges in ranges(process)?.chunks(ITEMS) {
        let mut request = request(record, What::Allocations, ranges);
        request.device = device;
        while request.from.range < request.count {
            let words = one(process, record, &request)?;
            let answer = Answer::read(&words);
            found.extend(answer.allocations().map(|each| (each.address, each)));
            // The process may have written the answer itself.
            if answer.next <= request.from || found.len() > MOST {
                return Err(VisitError::Io(io::ErrorKind::InvalidData.into()));
            }
            if began.elapsed() > ALL {
                return Err(VisitError::Io(io::ErrorKind::TimedOut.into()));
            }
            request.from = answer.next;
        }
    }
    Ok(())
}
