//! Maps memory from descriptors.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use stasis_injected_survey::{Answer, FILES, Item, VisitState, What, Where};

use super::export::taken;
use super::{Import, Visited};
use crate::survey::{Asked, VisitError, request};

/// Maps each import at its address, with the access and the references that it had. Memory that is
/// mapped there already stays as it is.
///
/// # Errors
/// [`VisitError`]: some may be mapped; that can be tried again.
pub fn import(
    visited: &Visited<'_>,
    imports: &[(Import, BorrowedFd<'_>)],
) -> Result<(), VisitError> {
    map(visited, imports, Where::There)
}

/// Maps each import elsewhere, and unmaps it again.
///
/// # Errors
/// [`VisitError`]: the import could not be mapped at its address, either. Nothing has changed.
pub fn rehearse(
    visited: &Visited<'_>,
    imports: &[(Import, BorrowedFd<'_>)],
) -> Result<(), VisitError> {
    map(visited, imports, Where::Elsewhere)
}

fn map(
    visited: &Visited<'_>,
    imports: &[(Import, BorrowedFd<'_>)],
    place: Where,
) -> Result<(), VisitError> {
    for imports in imports.chunks(FILES) {
        let items: Vec<Item> = imports
            .iter()
            .map(|(import, _)| item(import, place))
            .collect();
        let files: Vec<BorrowedFd<'_>> = imports.iter().map(|(_, file)| *file).collect();
        let request = request(visited.record, What::Import, &items);
        let asked = Asked::new(visited.process, visited.record, &request)?;
        let words = asked.until(VisitState::Holding)?;
        let socket = of_a_pair(taken(visited, Answer::read(&words).socket)?)?;
        send(socket.as_fd(), &files)?;
        drop(socket);
        asked.release_turn(1)?;
        asked.answer()?;
    }
    Ok(())
}

/// Returns a socket if it is one of a pair: the process may have put another one in its place,
/// whose other end would take the message for root's (SO_PASSCRED in unix(7)).
fn of_a_pair(socket: OwnedFd) -> io::Result<UnixStream> {
    let socket = UnixStream::from(socket);
    match socket.local_addr()?.is_unnamed() && socket.peer_addr()?.is_unnamed() {
        true => Ok(socket),
        false => Err(io::Error::other("its socket is not one of a pair")),
    }
}

/// Sends all descriptors in one message.
fn send(socket: BorrowedFd<'_>, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    let byte = [IoSlice::new(&[0])];
    sendmsg(socket, &byte, &mut control, SendFlags::DONTWAIT)?;
    Ok(())
}

fn item(import: &Import, place: Where) -> Item {
    Item {
        address: import.address,
        bytes: import.bytes,
        device: import.access,
        first: import.references,
        second: place as u64,
        handle: import.handle,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_socket_of_a_pair_gets_descriptors() {
        let (one, _other) = UnixStream::pair().unwrap();
        of_a_pair(one.into()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let others: [OwnedFd; 4] = [
            client.into(),
            accepted.into(),
            listener.into(),
            connected.into(),
        ];
        for other in others {
            assert!(of_a_pair(other).is_err());
        }
    }
}
