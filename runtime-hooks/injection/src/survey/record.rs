//! Memory of ours in a process, for the time of a survey.

use std::io;
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use nix::libc;
use serde::{Deserialize, Serialize};
use stasis_injected_survey::{Board, FUNCTIONS, SLOTS};
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{for_each_mapping, waiting};
use stasis_remote_call::{FRAME_BYTES, Numbered, Proxy, memory, reap, wait_until_outside};

use crate::area::{in_process, make};
use crate::code::SURVEY;
use crate::error::InjectionError;
use crate::prepare::{map, unsigned};
use crate::record::{PAGE, Span};
use crate::slots::{Refusal, functions};

/// Length of the stack, for libcuda's calls. Only used pages take memory.
const STACK: u64 = 1 << 20;
/// Offset in our page, behind its mark: the number of a process that we make.
const NUMBER: u64 = 64;

/// From the bottom: a page without rights, the stack, the frame by which the thread goes back, a
/// page of ours, the code, the board.
const FRAME: u64 = PAGE + STACK;
const OWN_PAGE: u64 = FRAME + FRAME_BYTES;
const CODE: u64 = OWN_PAGE + PAGE;
const BOARD: u64 = CODE + SURVEY.board as u64;
const LENGTH: u64 = BOARD + Board::LENGTH as u64;

/// The most time for a thread of the driver to go back.
const PATIENCE: Duration = Duration::from_secs(5);

/// Our memory in a process, for a survey: to be kept, durably, before [`crate::survey::ask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisitRecord {
    /// All memory of ours.
    all: Span,
    /// The number in our page, so that memory of another program is never taken for it.
    mark: u64,
    /// The driver's thread that may be in the code.
    thread: i32,
    /// The addresses of libcuda's functions.
    functions: [u64; FUNCTIONS.len()],
    /// The addresses of libcuda's slots.
    slots: [u64; SLOTS],
}

/// Result of a removal.
#[derive(Debug)]
pub enum Removed {
    /// The process has ended.
    Ended,
    /// The process has nothing of ours any more.
    Gone,
    /// A thread is still there: the driver's, in a call of libcuda, which must not be interrupted,
    /// or one that was not seen outside.
    InUse,
}

impl VisitRecord {
    pub(super) fn thread(&self) -> i32 {
        self.thread
    }

    pub(super) fn functions(&self) -> [u64; FUNCTIONS.len()] {
        self.functions
    }

    pub(super) fn slots(&self) -> [u64; SLOTS] {
        self.slots
    }

    /// Returns the code that the slots can lead to.
    pub(super) fn hooks(&self) -> [u64; SLOTS] {
        [SURVEY.calloc, SURVEY.free].map(|offset| self.at(CODE) + offset as u64)
    }

    /// Returns the entry of the thread.
    pub(super) fn code(&self) -> u64 {
        self.at(CODE) + SURVEY.survey as u64
    }

    pub(super) fn stack(&self) -> u64 {
        self.at(FRAME)
    }

    pub(super) fn frame(&self) -> u64 {
        self.at(FRAME)
    }

    pub(super) fn board(&self) -> u64 {
        self.at(BOARD)
    }

    fn at(&self, offset: u64) -> u64 {
        self.all.start + offset
    }

    fn places(&self) -> Range<u64> {
        self.all.start..self.all.start + self.all.length
    }

    fn proxy(&self) -> Numbered {
        Numbered {
            listed: self.at(OWN_PAGE + NUMBER),
            cleared_at_end: None,
        }
    }

    /// Whether the thread is seen to have left. A thread that runs counts as being there: it is not
    /// stopped for this, since it may be inside of libcuda.
    pub(crate) fn has_left(&self, process: &ProcessRef) -> io::Result<bool> {
        let places = self.places();
        let seen = waiting(process.pid(), self.thread)?;
        Ok(seen.is_some_and(|seen| {
            !places.contains(&seen.stack_pointer) && !places.contains(&seen.instruction)
        }))
    }
}

/// Puts code into a process, for its driver's thread. A thread of the process stands still
/// meanwhile.
///
/// # Errors
/// [`InjectionError::Prepare`]: the process is as it was.
pub fn prepare(process: &ProcessRef, thread: i32) -> Result<VisitRecord, InjectionError> {
    let found = functions(process, &FUNCTIONS).map_err(of_refusal);
    let placed = found.and_then(|(functions, slots)| {
        let functions = functions
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidData)?;
        in_process(process, |proxy| place(proxy, thread, functions, slots))
    });
    placed.map_err(InjectionError::Prepare)
}

fn of_refusal(refusal: Refusal) -> io::Error {
    io::Error::other(refusal)
}

fn place(
    proxy: &mut Proxy,
    thread: i32,
    functions: [u64; FUNCTIONS.len()],
    slots: [u64; SLOTS],
) -> io::Result<VisitRecord> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = map(proxy, 0, LENGTH, protection, flags)?;
    let record = VisitRecord {
        all: Span {
            start,
            length: LENGTH,
        },
        mark: fastrand::u64(1..),
        thread,
        functions,
        slots,
    };
    fill(proxy, &record).inspect_err(|_| {
        let _ = proxy.call(libc::SYS_munmap, &[start, LENGTH]);
    })?;
    Ok(record)
}

/// Writes code and mark. A child that the process forks meanwhile has code and board, to which its
/// slots may lead, and nothing else: there it passes all calls on.
fn fill(proxy: &mut Proxy, record: &VisitRecord) -> io::Result<()> {
    let (start, code) = (record.all.start, record.at(CODE));
    memory::write(proxy.pid(), code, SURVEY.code)?;
    memory::write(proxy.pid(), record.at(OWN_PAGE), &record.mark.to_ne_bytes())?;
    let none = unsigned(libc::PROT_NONE);
    let executable = unsigned(libc::PROT_READ | libc::PROT_EXEC);
    let stays = unsigned(libc::MADV_DONTFORK);
    make(
        proxy,
        &[
            (libc::SYS_madvise, [start, CODE, stays, 0, 0, 0]),
            (libc::SYS_mprotect, [start, PAGE, none, 0, 0, 0]),
            (
                libc::SYS_mprotect,
                [code, BOARD - CODE, executable, 0, 0, 0],
            ),
        ],
    )
}

/// Removes our memory from a process, once the driver's thread has left. Any process may call and
/// repeat it, as long as no other does; the process that prepared it has ended, or is the caller.
pub fn remove(process: &ProcessRef, record: &VisitRecord) -> Result<Removed, InjectionError> {
    match try_remove(process, record) {
        _ if process.is_gone() => Ok(Removed::Ended),
        other => other.map_err(InjectionError::PutBack),
    }
}

fn try_remove(process: &ProcessRef, record: &VisitRecord) -> io::Result<Removed> {
    let (pid, is_gone) = (process.pid(), || process.is_gone());
    if !is_there(pid, record)? {
        return Ok(Removed::Gone);
    }
    let began = Instant::now();
    while !record.has_left(process)? {
        if began.elapsed() > PATIENCE || process.is_gone() {
            return Ok(Removed::InUse);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    // Threads of the program may have come to the hooks while slots led there.
    let code = record.at(CODE)..record.at(BOARD);
    if memory::word(pid, record.at(BOARD) + Board::LED as u64)? != 0
        && wait_until_outside(pid, &code, is_gone).is_err()
    {
        return Ok(Removed::InUse);
    }
    let mut number = [0; 4];
    memory::read(pid, record.proxy().listed, &mut number)?;
    reap(pid, &[i32::from_ne_bytes(number)], is_gone)?;
    let mut proxy = Proxy::numbered(pid, record.proxy(), is_gone)?;
    let Span { start, length } = record.all;
    let unmapped = proxy.call(libc::SYS_munmap, &[start, length]);
    proxy.end()?;
    unmapped?;
    Ok(Removed::Gone)
}

/// Whether our memory is mapped: executable memory without a file, and our number.
fn is_there(pid: i32, record: &VisitRecord) -> io::Result<bool> {
    let code = record.at(CODE);
    let found = for_each_mapping(pid, |mapping| {
        // The kernel may have joined our mapping with another.
        let has_code = mapping.start <= code && code < mapping.end;
        match has_code && mapping.has(b'x') && mapping.inode == 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    if found.is_none() {
        return Ok(false);
    }
    Ok(memory::word(pid, record.at(OWN_PAGE))? == record.mark)
}
