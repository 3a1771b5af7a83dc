//! One request, from its beginning to its answer.
#![allow(unsafe_code)] // a board that another process writes

use core::ptr::addr_of_mut;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::allocations::{Probe, allocations};
use crate::board::{Answer, Board, Cursor, DEVICES, Request, VisitState, What};
use crate::contexts::Contexts;
use crate::driver::{CaptureMode, Driver, Failed, Result};
use crate::drop_import::drop_imports;
use crate::errand::Errand;
use crate::export::export;
use crate::hooks::{Hooks, led};
use crate::identify::identify;
use crate::import::import;
use crate::peers::peers;

/// Answers the request on a board.
///
/// # Safety
/// `board` points to a board, which nothing else uses meanwhile but to read the answer and to write
/// the host word. Its request has the addresses of libcuda's functions, in this process and on a
/// thread that may call them.
pub unsafe fn survey(board: *mut Board) {
    // SAFETY: as the caller promises; the four do not overlap.
    let (request, host, answer, hooks) = unsafe {
        let (request, host, answer, hooks) = (
            addr_of_mut!((*board).request),
            addr_of_mut!((*board).host),
            addr_of_mut!((*board).answer),
            addr_of_mut!((*board).hooks),
        );
        (&*request, &*host, &mut *answer, &*hooks)
    };
    // SAFETY: as the caller promises.
    let driver = unsafe { Driver::new(&request.functions) };
    begin(answer);
    if let Err(Failed { call, result }) = ask(driver, request, (host, hooks), answer) {
        answer.failed = call + 1;
        answer.result = u64::from(result.cast_unsigned());
    }
    answer.state.store(VisitState::Answered as u64, Release);
}

fn begin(answer: &mut Answer) {
    answer.failed = 0;
    answer.result = 0;
    answer.active = 0;
    answer.count = 0;
    for word in [&answer.item, &answer.abandoned, &answer.socket] {
        word.store(0, Relaxed);
    }
    let mut device = 0;
    while device < DEVICES {
        answer.peers[device] = 0;
        device += 1;
    }
}

fn ask(
    driver: Driver<'_>,
    request: &Request,
    (host, hooks): (&AtomicU64, &Hooks),
    answer: &mut Answer,
) -> Result<()> {
    Contexts::with(driver, |contexts| {
        answer.active = contexts.active();
        if request.what == What::Peers as u64 {
            answer.peers = peers(driver, contexts)?;
            return Ok(());
        }
        if request.what != What::Allocations as u64 {
            let errand = Errand {
                driver,
                request,
                host,
                answer,
                hooks,
            };
            answer.next = unseen_by_captures(driver, || {
                contexts.with_some_current(driver, || of_imports(errand, contexts))
            })?;
            return Ok(());
        }
        let mut each = contexts.each();
        let of = each.find(|(device, _)| u64::from(device.cast_unsigned()) == request.device);
        let Some((_, context)) = of else {
            return allocations(driver, contexts, Probe::Handle, request, answer);
        };
        driver.push(context)?;
        let found = allocations(driver, contexts, Probe::Range, request, answer);
        driver.pop()?;
        found
    })
}

/// Returns where to continue.
fn of_imports(errand: Errand<'_>, contexts: &Contexts) -> Result<Cursor> {
    let Request {
        what, slots, hooks, ..
    } = *errand.request;
    if what == What::Drop as u64 {
        // SAFETY: the request has the slots and the code for them.
        return unsafe {
            led(errand.hooks, slots, hooks, || {
                drop_imports(errand, contexts)
            })
        };
    }
    let done = if what == What::Identify as u64 {
        identify(errand, contexts)
    } else if what == What::Export as u64 {
        export(errand)
    } else {
        // SAFETY: as above.
        unsafe { led(errand.hooks, slots, hooks, || import(errand)) }
    };
    done.map(|()| Cursor {
        range: errand.request.count,
        address: 0,
    })
}

/// Keeps our copies and mappings from spoiling a stream capture of the program.
fn unseen_by_captures<T>(driver: Driver<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = driver.exchange_capture_mode(CaptureMode::RELAXED)?;
    let worked = work();
    let exchanged = driver.exchange_capture_mode(before);
    worked.and_then(|value| exchanged.map(|_| value))
}
