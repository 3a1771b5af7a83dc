//! The driver's thread is sent to look, and its answers are collected.

use std::collections::BTreeMap;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_injected_survey::{
    Allocation, Answer, Board, Cursor, DEVICES, FUNCTIONS, NO_CONTEXT, RANGES, Range, Read,
    Request, What,
};
use stasis_linux::ProcessRef;
use stasis_remote_call::{Errand, Sent, Start, memory, send, stack_pointer_of};

use super::ranges::ranges;
use super::record::SurveyRecord;

/// How long the thread may look at once, before others may have it.
const LIMIT: Duration = Duration::from_millis(8);
/// How long its answer is waited for: libcuda may be in the way of a thread that holds its locks.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all of it may take: a rank of NCCL has hundreds of GiB of addresses.
const ALL: Duration = Duration::from_secs(15);
/// More than any job has.
const MOST: usize = 1 << 16;
/// How long the thread may be busy: with the commands of others, which it carries out.
const BUSY: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_micros(50);

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// All allocations of whole 2 MiB, by their addresses, and some smaller ones.
    pub allocations: Vec<Allocation>,
    /// By bits: the devices whose primary context is there.
    pub active: u64,
    /// For the context of each device, by bits, those that it has peer access to.
    pub peers: [u64; DEVICES],
}

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// A call of libcuda that must not fail.
    #[error("{call} on the driver's checkpoint thread: CUDA error {result}")]
    Call {
        /// Its name.
        call: &'static str,
        /// Its `CUresult`.
        result: u64,
    },
    /// It carries out something else, all the time.
    #[error("the driver's checkpoint thread is busy")]
    Busy,
    /// The call goes on, and ends by itself.
    #[error("no answer of the driver's checkpoint thread within {} s", PATIENCE.as_secs())]
    NoAnswer,
    /// Of ptrace(2), `/proc` and the process's memory.
    #[error("the driver's checkpoint thread cannot be asked")]
    Io(#[from] io::Error),
}

/// Asks which GPU memory there is, and between which contexts there is peer access. The process is
/// LOCKED, and stays so.
///
/// # Errors
/// [`SurveyError`]. What was put into the process is still to be removed.
pub fn ask(process: &ProcessRef, record: &SurveyRecord) -> Result<Found, SurveyError> {
    let began = Instant::now();
    let words = one(process, record, &request(record, What::Peers, NO_CONTEXT))?;
    let Read { active, peers, .. } = Answer::read(&words);
    let mut found = BTreeMap::new();
    // A context knows what it may use; without any, what has handles is found.
    let contexts = (0..DEVICES as u64).filter(|device| active & 1 << device != 0);
    let without = (active == 0).then_some(NO_CONTEXT);
    for device in contexts.chain(without) {
        look_all_over(process, record, device, began, &mut found)?;
    }
    Ok(Found {
        allocations: found.into_values().collect(),
        active,
        peers,
    })
}

/// Asks at all addresses.
fn look_all_over(
    process: &ProcessRef,
    record: &SurveyRecord,
    device: u64,
    began: Instant,
    found: &mut BTreeMap<u64, Allocation>,
) -> Result<(), SurveyError> {
    for ranges in ranges(process)?.chunks(RANGES) {
        let mut request = request(record, What::Allocations, device);
        request.count = ranges.len() as u64;
        for (place, range) in request.ranges.iter_mut().zip(ranges) {
            *place = *range;
        }
        while request.from.range < request.count {
            let words = one(process, record, &request)?;
            let answer = Answer::read(&words);
            found.extend(answer.allocations().map(|each| (each.address, each)));
            // The process may have written it itself.
            if answer.next <= request.from || found.len() > MOST {
                return Err(SurveyError::Io(io::ErrorKind::InvalidData.into()));
            }
            if began.elapsed() > ALL {
                return Err(SurveyError::Io(io::ErrorKind::TimedOut.into()));
            }
            request.from = answer.next;
        }
    }
    Ok(())
}

fn request(record: &SurveyRecord, what: What, device: u64) -> Request {
    Request {
        frame: stack_pointer_of(record.frame()),
        functions: record.functions(),
        what: what as u64,
        device,
        limit_ns: LIMIT.as_nanos().try_into().unwrap_or(u64::MAX),
        from: Cursor::default(),
        count: 0,
        ranges: [Range::default(); RANGES],
    }
}

/// One errand.
fn one(
    process: &ProcessRef,
    record: &SurveyRecord,
    request: &Request,
) -> Result<Box<[u64; Answer::WORDS]>, SurveyError> {
    let (pid, board) = (process.pid(), record.board());
    let words: Vec<[u8; 8]> = request.words().map(u64::to_ne_bytes).collect();
    memory::write(pid, board + Board::REQUEST as u64, words.as_flattened())?;
    memory::write(pid, board + Board::STATE as u64, &[0; 8])?;
    send_when_idle(process, record)?;
    wait_for_answer(process, record)?;
    let mut bytes = vec![0; Answer::WORDS * 8];
    memory::read(pid, board + Board::ANSWER as u64, &mut bytes)?;
    let words: Vec<u64> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    let words: Box<[u64; Answer::WORDS]> = words
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    if let Some((call, result)) = Answer::read(&words).failed {
        let call = usize::try_from(call)
            .ok()
            .and_then(|call| FUNCTIONS.get(call).copied());
        let call = call.unwrap_or("a call");
        return Err(SurveyError::Call { call, result });
    }
    Ok(words)
}

fn send_when_idle(process: &ProcessRef, record: &SurveyRecord) -> Result<(), SurveyError> {
    let errand = Errand {
        start: Start {
            code: record.code(),
            stack: record.stack(),
            argument: record.board(),
        },
        frame: record.frame(),
    };
    let began = Instant::now();
    let is_gone = || process.is_gone();
    while send(process.pid(), record.thread(), errand, is_gone)? == Sent::Busy {
        if began.elapsed() > BUSY {
            return Err(SurveyError::Busy);
        }
        sleep(POLL * 20);
    }
    Ok(())
}

/// Until it has answered, and is back where it was.
fn wait_for_answer(process: &ProcessRef, record: &SurveyRecord) -> Result<(), SurveyError> {
    let state = record.board() + Board::STATE as u64;
    let began = Instant::now();
    while memory::word(process.pid(), state)? == 0 || !record.has_left(process)? {
        if process.is_gone() {
            return Err(SurveyError::Io(io::ErrorKind::NotFound.into()));
        }
        if began.elapsed() > PATIENCE {
            return Err(SurveyError::NoAnswer);
        }
        sleep(POLL);
    }
    Ok(())
}
