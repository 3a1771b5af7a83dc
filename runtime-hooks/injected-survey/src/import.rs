//! Memory of other processes is mapped, from descriptors that the asking process sends.
//!
//! No call gives another process a descriptor, so it is sent through a socket, of which the asking
//! process takes one end (pidfd_getfd(2)).

use core::sync::atomic::Ordering::Relaxed;

use crate::board::{FILES, VisitState, Where};
use crate::driver::{Other, Result};
use crate::errand::{Errand, Waited};
use crate::export::{close_values, closed};
use crate::mapping::{map_again, rehearse};
use crate::system::{close, receive, socket_pair};

/// Waits for one descriptor for each item, and maps their memory.
pub(crate) fn import(errand: Errand<'_>) -> Result<()> {
    let pair = socket_pair().map_err(|errno| Other::SocketPair.failed(errno));
    let [own, others] = pair?;
    errand.answer.socket.store(others, Relaxed);
    let worked = match errand.wait(VisitState::Holding, 1) {
        Waited::LetGoOn => receive_and_map(errand, own),
        Waited::Abandoned => Ok(()),
    };
    let sockets = closed(own).and(closed(others));
    worked.and(sockets)
}

/// Receives the descriptors into the values, maps their memory, and closes them.
fn receive_and_map(errand: Errand<'_>, socket: u64) -> Result<()> {
    let mut received = 0;
    let worked = receive_all(errand, socket, &mut received).and_then(|()| map_all(errand));
    worked.and(close_values(errand, received))
}

/// Receives as many descriptors as there are items. All of them have already arrived.
fn receive_all(errand: Errand<'_>, socket: u64, received: &mut usize) -> Result<()> {
    let wanted = errand.items().len().min(FILES);
    let mut messages = 0;
    while *received < wanted && messages < FILES {
        let message = receive(socket, |file| {
            if *received < wanted {
                errand.set_value(*received, [file, 0]);
                *received += 1;
            } else {
                let _ = close(file);
            }
        });
        message.map_err(|errno| Other::Receive.failed(errno))?;
        messages += 1;
    }
    match *received < wanted {
        true => errand.of(*received, Err(Other::Receive.failed(0))),
        false => Ok(()),
    }
}

fn map_all(errand: Errand<'_>) -> Result<()> {
    for (index, item) in errand.items().take(FILES) {
        let [file, _] = errand.value(index);
        let mapped = if item.second == Where::Elsewhere as u64 {
            rehearse(errand, item, file)
        } else {
            map_again(errand, item, file)
        };
        errand.of(index, mapped)?;
    }
    Ok(())
}
