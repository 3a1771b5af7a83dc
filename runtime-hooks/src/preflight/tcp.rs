//! The TCP connections between processes of a container, from `/proc/PID/net/tcp` and `tcp6`.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};

use stasis_linux::ProcessRef;
use stasis_linux::procfs::gone_is_none;

/// A line takes 150 bytes: more than a hundred thousand connections of the host, if the container
/// is on its network.
const MAX_BYTES: u64 = 16 << 20;
/// TCP_ESTABLISHED, as the kernel writes it.
const ESTABLISHED: &str = "01";

/// The two ends of each connection that begins and ends on this machine, by the sockets' inodes.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    peers: HashMap<u64, u64>,
}

impl Connections {
    /// Reads the connections in the network namespaces of these processes.
    pub(crate) fn of<'p>(processes: impl Iterator<Item = &'p ProcessRef>) -> io::Result<Self> {
        let mut seen = BTreeSet::new();
        let mut connections = Self::default();
        for process in processes {
            let pid = process.pid();
            let Some(namespace) = gone_is_none(fs::read_link(format!("/proc/{pid}/ns/net")))?
            else {
                continue;
            };
            if !seen.insert(namespace) {
                continue;
            }
            for table in ["tcp", "tcp6"] {
                // A kernel without IPv6 has no second table.
                if let Some(file) = gone_is_none(File::open(format!("/proc/{pid}/net/{table}")))? {
                    connections.read(BufReader::new(file.take(MAX_BYTES)))?;
                }
            }
        }
        Ok(connections)
    }

    #[cfg(test)]
    pub(crate) fn joining(one: u64, other: u64) -> Self {
        let peers = HashMap::from([(one, other), (other, one)]);
        Self { peers }
    }

    fn read(&mut self, table: impl BufRead) -> io::Result<()> {
        let mut waiting: HashMap<(String, String), u64> = HashMap::new();
        for line in table.lines() {
            let line = line?;
            let Some((local, remote, inode)) = established(&line) else {
                continue;
            };
            let end = (local.to_owned(), remote.to_owned());
            let other = (remote.to_owned(), local.to_owned());
            if let Some(peer) = waiting.remove(&other) {
                self.peers.insert(peer, inode);
                self.peers.insert(inode, peer);
            } else {
                waiting.insert(end, inode);
            }
        }
        Ok(())
    }

    /// Whether a socket of one process is connected with one of another.
    pub(crate) fn are_between(&self, one: &BTreeSet<u64>, other: &BTreeSet<u64>) -> bool {
        let mut peers = one.iter().filter_map(|inode| self.peers.get(inode));
        peers.any(|peer| other.contains(peer))
    }
}

/// The local and the remote address and the inode of a line about an established connection.
fn established(line: &str) -> Option<(&str, &str, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (local, remote, state) = (fields.nth(1)?, fields.next()?, fields.next()?);
    if state != ESTABLISHED {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    Some((local, remote, inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 10 1 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0
   2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0
   3: 0100007F:C351 0200000A:1F90 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0
   4: 0100007F:C352 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0
   5: cut";

    #[test]
    fn both_ends_of_a_connection_find_each_other() {
        let mut connections = Connections::default();
        connections.read(TABLE.as_bytes()).unwrap();
        let set = |inode| BTreeSet::from([inode, 99]);
        assert!(connections.are_between(&set(11), &set(12)));
        assert!(connections.are_between(&set(12), &set(11)));
        assert!(!connections.are_between(&set(11), &set(13)));
        assert!(!connections.are_between(&set(10), &set(12)));
    }

    #[test]
    fn a_real_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _there = listener.accept().unwrap();
        let own = ProcessRef::open(i32::try_from(std::process::id()).unwrap());
        let own = own.unwrap().unwrap();
        let connections = Connections::of([&own].into_iter()).unwrap();
        let sockets = crate::preflight::open_files::OpenFiles::read(&own, None)
            .unwrap()
            .sockets;
        assert!(connections.are_between(&sockets, &sockets));
    }
}
