//! CRIU's lock of a network.
//!
//! For the time of a dump CRIU has the network namespace of the tasks drop all packets: two chains
//! lead to one of its own (criu/net.c, `network_lock_internal`), by iptables unless CRIU is
//! configured or built otherwise. It unlocks if the tasks resume, not if they end (criu/cr-dump.c,
//! `cr_dump_finish`): connections that it has saved must not be reset before their restore. Without
//! any, the lock is of no use, and other processes in the namespace cannot send.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use stasis_linux::process::network::in_network;

/// The programs that CRIU itself calls: for IPv4, and for IPv6.
const IPTABLES: [[&str; 2]; 2] = [
    ["iptables", "iptables-restore"],
    ["ip6tables", "ip6tables-restore"],
];
/// Waits for another program that holds the lock of iptables; in seconds.
const WAIT: &str = "--wait=5";
/// Removes one jump of each to CRIU's chain: another dump in the namespace has its own.
const JUMPS: &str = "*filter\n-D INPUT -j CRIU\n-D OUTPUT -j CRIU\nCOMMIT\n";
const CHAIN: &str = "*filter\n-F CRIU\n-X CRIU\nCOMMIT\n";

/// The prefix of CRIU's image of a connection that was saved (criu/image-desc.c).
const CONNECTION: &str = "tcp-stream-";

/// Removes CRIU's lock from the network of tasks that were dumped into `image`, and end. The lock
/// stays if a connection was saved. Without a lock nothing is changed.
///
/// # Errors
/// An I/O error, or that of iptables: the network may still be locked.
pub(super) fn release(network: &File, image: &Path) -> io::Result<()> {
    for entry in fs::read_dir(image)? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(CONNECTION.as_bytes()) {
            return Ok(());
        }
    }
    in_network(network.as_fd(), || {
        let [ipv4, ipv6] = IPTABLES.map(|[list, change]| release_by(list, change));
        ipv4.and(ipv6)
    })
}

fn release_by(list: &str, change: &str) -> io::Result<()> {
    if !has_chain(list)? {
        return Ok(());
    }
    load(change, JUMPS)?;
    // Another dump's jump still leads there: then the chain is that dump's, and nothing is changed.
    if leads_there(list)? {
        return Ok(());
    }
    load(change, CHAIN)
}

fn has_chain(list: &str) -> io::Result<bool> {
    succeeds(list, &["-n", "-L", "CRIU"])
}

fn leads_there(list: &str) -> io::Result<bool> {
    succeeds(list, &["-C", "INPUT", "-j", "CRIU"])
}

/// A program that is not there has not locked anything.
fn succeeds(list: &str, question: &[&str]) -> io::Result<bool> {
    let mut command = Command::new(list);
    command.arg(WAIT).args(question);
    command.stdin(Stdio::null());
    match command.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        asked => Ok(asked?.success()),
    }
}

/// All of the changes or none (iptables-restore(8)).
fn load(program: &str, changes: &str) -> io::Result<()> {
    let (read, mut write) = io::pipe()?;
    // A pipe holds that much before it is read.
    write.write_all(changes.as_bytes())?;
    drop(write);
    let status = Command::new(program)
        .args([WAIT, "--noflush"])
        .stdin(read)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program} ended with {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_stays_for_a_connection_that_was_saved() {
        let image = tempfile::tempdir().unwrap();
        let no_network = File::open("/dev/null").unwrap();
        release(&no_network, image.path()).unwrap_err();
        fs::write(image.path().join("tcp-stream-1f.img"), "").unwrap();
        release(&no_network, image.path()).unwrap();
    }
}
