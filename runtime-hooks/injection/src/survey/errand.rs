//! One request: sends the driver's thread with it, waits for the thread, and lets it continue.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_injected_survey::{
    Answer, Board, Cursor, ITEMS, Item, NO_CONTEXT, Request, VisitState, What,
};
use stasis_linux::ProcessRef;
use stasis_remote_call::{Errand, Sent, Start, memory, send, stack_pointer_of};

use super::error::{PATIENCE, VisitError};
use super::record::VisitRecord;

/// The most time for one look, before others get their turn on the thread.
const LIMIT: Duration = Duration::from_millis(8);
/// The most time that the thread waits for us each time. After that it continues alone.
const HELD: Duration = Duration::from_secs(2);
/// The most time that the thread may be busy with the commands of other processes.
const BUSY: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_micros(50);
const NO_ANSWER: (Duration, VisitError) = (PATIENCE, VisitError::NoAnswer);

/// Whether this process makes no request any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Lets no request of this process begin from now on: who waited for its work has ended or waits no
/// more, so others may unlock the processes.
pub fn begin_no_more() {
    IS_OVER.store(true, Ordering::SeqCst);
}

/// The words of an answer.
pub(crate) type Words = Box<[u64; Answer::WORDS]>;

/// Makes a request about these items, as many as fit.
pub(crate) fn request(record: &VisitRecord, what: What, items: &[Item]) -> Request {
    let nanoseconds = |time: Duration| time.as_nanos().try_into().unwrap_or(u64::MAX);
    let mut request = Request {
        frame: stack_pointer_of(record.frame()),
        functions: record.functions(),
        slots: record.slots(),
        hooks: record.hooks(),
        what: what as u64,
        device: NO_CONTEXT,
        limit_ns: nanoseconds(LIMIT),
        patience_ns: nanoseconds(HELD),
        from: Cursor::default(),
        count: items.len().min(ITEMS) as u64,
        items: [Item::default(); ITEMS],
    };
    for (place, item) in request.items.iter_mut().zip(items) {
        *place = *item;
    }
    request
}

/// Makes one request without a stop in between, and waits for its answer.
pub(crate) fn one(
    process: &ProcessRef,
    record: &VisitRecord,
    request: &Request,
) -> Result<Words, VisitError> {
    Asked::new(process, record, request)?.answer()
}

/// A thread with a request. If this is dropped before the request's end, the thread may continue,
/// and is waited for.
#[derive(Debug)]
pub(crate) struct Asked<'p> {
    process: &'p ProcessRef,
    record: &'p VisitRecord,
    /// Whether the request's end has been waited for.
    is_over: Cell<bool>,
}

impl<'p> Asked<'p> {
    /// Sends the thread.
    pub(crate) fn new(
        process: &'p ProcessRef,
        record: &'p VisitRecord,
        request: &Request,
    ) -> Result<Self, VisitError> {
        let (pid, board) = (process.pid(), record.board());
        // A thread reads the request of a process that was killed until it goes.
        wait(process, (BUSY, VisitError::Busy), || {
            record.has_left(process)
        })?;
        if IS_OVER.load(Ordering::SeqCst) {
            return Err(VisitError::Over);
        }
        let words: Vec<[u8; 8]> = request.words().map(u64::to_ne_bytes).collect();
        memory::write(pid, board + Board::REQUEST as u64, words.as_flattened())?;
        memory::write(pid, board + Board::HOST as u64, &[0; 8])?;
        memory::write(pid, board + Board::STATE as u64, &[0; 8])?;
        send_when_idle(process, record)?;
        Ok(Self {
            process,
            record,
            is_over: Cell::new(false),
        })
    }

    /// Waits until the thread reports `state`, and waits for us; returns its answer so far.
    pub(crate) fn until(&self, state: VisitState) -> Result<Words, VisitError> {
        let is_there = |now| now == state as u64 || now == VisitState::Answered as u64;
        wait(self.process, NO_ANSWER, || Ok(is_there(self.state()?)))?;
        let words = self.read()?;
        match Answer::read(&words).is_answered {
            // The request has failed, or the thread has waited too long.
            true => Err(self.checked().err().unwrap_or(VisitError::Abandoned)),
            false => Ok(words),
        }
    }

    /// Lets the thread continue from its wait of this number.
    pub(crate) fn release_turn(&self, turn: u64) -> Result<(), VisitError> {
        let host = self.record.board() + Board::HOST as u64;
        Ok(memory::write(
            self.process.pid(),
            host,
            &turn.to_ne_bytes(),
        )?)
    }

    /// Returns the answer, once the thread has gone.
    pub(crate) fn answer(self) -> Result<Words, VisitError> {
        self.checked()
    }

    fn checked(&self) -> Result<Words, VisitError> {
        let (words, done) = self.answer_so_far()?;
        done.map(|()| words)
    }

    /// Returns the answer as far as it came, and why not further, once the thread has gone.
    pub(crate) fn answer_so_far(&self) -> Result<(Words, Result<(), VisitError>), VisitError> {
        self.is_over.set(true);
        self.wait_for_the_end()?;
        let words = self.read()?;
        let done = VisitError::in_answer(&Answer::read(&words));
        Ok((words, done))
    }

    /// Waits until the thread has answered, and is back where it was.
    fn wait_for_the_end(&self) -> Result<(), VisitError> {
        let is_answered = |now| now == VisitState::Answered as u64;
        wait(self.process, NO_ANSWER, || {
            Ok(is_answered(self.state()?) && self.record.has_left(self.process)?)
        })
    }

    fn state(&self) -> io::Result<u64> {
        memory::word(
            self.process.pid(),
            self.record.board() + Board::STATE as u64,
        )
    }

    fn read(&self) -> io::Result<Words> {
        let mut bytes = vec![0; Answer::WORDS * 8];
        let answer = self.record.board() + Board::ANSWER as u64;
        memory::read(self.process.pid(), answer, &mut bytes)?;
        let words = bytes.as_chunks().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_ne_bytes(*word)).collect();
        words
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // A process that has ended needs nothing, and a thread continues alone.
        if !self.is_over.get() && self.release_turn(u64::MAX).is_ok() {
            let _ = self.wait_for_the_end();
        }
    }
}

/// Waits until `is_over`; returns `late` if it takes longer than `limit`.
fn wait(
    process: &ProcessRef,
    (limit, late): (Duration, VisitError),
    is_over: impl Fn() -> io::Result<bool>,
) -> Result<(), VisitError> {
    let began = Instant::now();
    while !is_over()? {
        if process.is_gone() {
            return Err(VisitError::Io(io::ErrorKind::NotFound.into()));
        }
        if began.elapsed() > limit {
            return Err(late);
        }
        sleep(POLL);
    }
    Ok(())
}

fn send_when_idle(process: &ProcessRef, record: &VisitRecord) -> Result<(), VisitError> {
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
            return Err(VisitError::Busy);
        }
        sleep(POLL * 20);
    }
    Ok(())
}
