//! One request, from its beginning to its answer.
#![allow(unsafe_code)] // a board that another process writes

use core::ptr::addr_of_mut;
use core::sync::atomic::Ordering::Release;

use crate::allocations::{Probe, allocations};
use crate::board::{Answer, Board, DEVICES, Request, State, What};
use crate::contexts::Contexts;
use crate::driver::{Driver, Failed, Result};
use crate::peers::peers;

/// Answers what is asked.
///
/// # Safety
/// It is a board, which nobody else uses meanwhile but to read the answer's state, and its request
/// has the addresses of libcuda's functions, in its process and on a thread that may call them.
pub unsafe fn survey(board: *mut Board) {
    // SAFETY: as the caller promises; the two do not overlap.
    let (request, answer) = unsafe {
        let (request, answer) = (
            addr_of_mut!((*board).request),
            addr_of_mut!((*board).answer),
        );
        (&*request, &mut *answer)
    };
    // SAFETY: as the caller promises.
    let driver = unsafe { Driver::new(&request.functions) };
    begin(answer);
    if let Err(Failed { call, result }) = ask(driver, request, answer) {
        answer.failed = call + 1;
        answer.result = u64::from(result.cast_unsigned());
    }
    answer.state.store(State::Answered as u64, Release);
}

fn begin(answer: &mut Answer) {
    answer.failed = 0;
    answer.result = 0;
    answer.active = 0;
    answer.count = 0;
    let mut device = 0;
    while device < DEVICES {
        answer.peers[device] = 0;
        device += 1;
    }
}

fn ask(driver: Driver<'_>, request: &Request, answer: &mut Answer) -> Result<()> {
    Contexts::with(driver, |contexts| {
        answer.active = contexts.active();
        if request.what == What::Peers as u64 {
            answer.peers = peers(driver, contexts)?;
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
