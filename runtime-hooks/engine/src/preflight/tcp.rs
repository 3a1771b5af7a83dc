//! The TCP connections of a container's processes, from `/proc/PID/net/tcp` and `tcp6`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use stasis_linux::procfs::{Namespace, gone_is_none, namespace_of};

use crate::request::CriuOption;

/// A line takes 150 bytes: more than a hundred thousand connections of the host, if the container
/// is on its network.
const MAX_BYTES: u64 = 16 << 20;
/// As the kernel writes the states of a socket (include/net/tcp_states.h).
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";
/// States that CRIU takes for connected: also on the way to it, and away from it until no process
/// holds the socket any more (criu/sk-inet.c, `can_dump_inet_sk`).
const CONNECTED: [&str; 7] = [ESTABLISHED, "02", "04", "05", "08", "09", "0B"];

/// The connections in the network namespaces that were read, by the sockets' inodes.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    namespaces: Vec<Namespace>,
    /// The two ends of each connection that begins and ends on this machine.
    peers: HashMap<u64, u64>,
    connected: HashSet<u64>,
    /// Listening sockets with connections that were not accepted.
    awaited: HashSet<u64>,
}

impl Connections {
    /// Reads the connections in the network namespace of a process, if that is not known yet.
    pub(crate) fn read_of(&mut self, pid: i32) -> io::Result<()> {
        let Some(namespace) = namespace_of(pid, "net")? else {
            return Ok(());
        };
        if self.namespaces.contains(&namespace) {
            return Ok(());
        }
        self.namespaces.push(namespace);
        for table in ["tcp", "tcp6"] {
            // A kernel without IPv6 has no second table.
            if let Some(file) = gone_is_none(File::open(format!("/proc/{pid}/net/{table}")))? {
                self.read(BufReader::new(file.take(MAX_BYTES)))?;
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn joining(one: u64, other: u64) -> Self {
        let peers = HashMap::from([(one, other), (other, one)]);
        Self {
            peers,
            ..Self::default()
        }
    }

    fn read(&mut self, table: impl BufRead) -> io::Result<()> {
        let mut waiting: HashMap<(String, String), u64> = HashMap::new();
        for line in table.lines() {
            let line = line?;
            let Some(socket) = Socket::of(&line) else {
                continue;
            };
            if CONNECTED.contains(&socket.state) {
                self.connected.insert(socket.inode);
            }
            if socket.state == LISTEN && socket.unread > 0 {
                self.awaited.insert(socket.inode);
            }
            if socket.state != ESTABLISHED {
                continue;
            }
            let end = (socket.local.to_owned(), socket.remote.to_owned());
            let other = (socket.remote.to_owned(), socket.local.to_owned());
            if let Some(peer) = waiting.remove(&other) {
                self.peers.insert(peer, socket.inode);
                self.peers.insert(socket.inode, peer);
            } else {
                waiting.insert(end, socket.inode);
            }
        }
        Ok(())
    }

    /// Whether a socket of one process is connected with one of another.
    pub(crate) fn are_between(&self, one: &Sockets, other: &Sockets) -> bool {
        let mut peers = one.keys().filter_map(|inode| self.peers.get(inode));
        peers.any(|peer| other.contains_key(peer))
    }

    /// Returns the option that CRIU needs to dump a socket, if it needs one.
    pub(crate) fn needs(&self, inode: u64) -> Option<CriuOption> {
        if self.connected.contains(&inode) {
            return Some(CriuOption::TcpEstablished);
        }
        let is_awaited = self.awaited.contains(&inode);
        is_awaited.then_some(CriuOption::TcpSkipInFlight)
    }
}

/// Inodes of sockets, each with a descriptor.
pub(crate) type Sockets = BTreeMap<u64, u32>;

/// A line of the table.
struct Socket<'l> {
    local: &'l str,
    remote: &'l str,
    state: &'l str,
    /// Unread bytes; of a listening socket, connections that were not accepted (`get_tcp4_sock` in
    /// the kernel's net/ipv4/tcp_ipv4.c).
    unread: u64,
    inode: u64,
}

impl<'l> Socket<'l> {
    fn of(line: &'l str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (local, remote, state) = (fields.nth(1)?, fields.next()?, fields.next()?);
        let (_, unread) = fields.next()?.split_once(':')?;
        Some(Self {
            local,
            remote,
            state,
            unread: u64::from_str_radix(unread, 16).ok()?,
            inode: fields.nth(4)?.parse().ok()?,
        })
    }
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
   5: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1 0
   6: 0100007F:1F92 00000000:0000 0A 00000000:00000002 00:00000000 00000000     0        0 15 1 0
   7: 0100007F:C353 0200000A:1F90 02 00000001:00000000 00:00000000 00000000     0        0 16 1 0
   8: 0100007F:C354 0200000A:1F90 08 00000000:00000001 00:00000000 00000000     0        0 17 1 0
   9: cut";

    #[test]
    fn both_ends_of_a_connection_find_each_other() {
        let mut connections = Connections::default();
        connections.read(TABLE.as_bytes()).unwrap();
        let set = |inode| BTreeMap::from([(inode, 3), (99, 4)]);
        assert!(connections.are_between(&set(11), &set(12)));
        assert!(connections.are_between(&set(12), &set(11)));
        assert!(!connections.are_between(&set(11), &set(13)));
        assert!(!connections.are_between(&set(10), &set(12)));
    }

    #[test]
    fn what_criu_dumps_only_if_asked_is_known_by_its_state() {
        let mut connections = Connections::default();
        connections.read(TABLE.as_bytes()).unwrap();
        for inode in [11, 12, 13, 16, 17] {
            let needs = connections.needs(inode);
            assert_eq!(needs, Some(CriuOption::TcpEstablished), "{inode}");
        }
        assert_eq!(connections.needs(15), Some(CriuOption::TcpSkipInFlight));
        for inode in [0, 10, 14, 99] {
            assert_eq!(connections.needs(inode), None, "{inode}");
        }
    }

    fn of_this_process() -> (Connections, Sockets) {
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = stasis_linux::ProcessRef::open(pid).unwrap().unwrap();
        let mut connections = Connections::default();
        connections.read_of(pid).unwrap();
        connections.read_of(pid).unwrap();
        assert_eq!(connections.namespaces.len(), 1);
        let held = crate::preflight::open_files::OpenFiles::read(&own, None);
        (connections, held.unwrap().sockets)
    }

    #[test]
    fn a_real_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode_of =
            |socket: &dyn std::os::fd::AsFd| rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
        let listening = inode_of(&listener);
        assert_eq!(of_this_process().0.needs(listening), None);
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let needs = of_this_process().0.needs(listening);
        assert_eq!(needs, Some(CriuOption::TcpSkipInFlight));
        let _there = listener.accept().unwrap();
        let (connections, sockets) = of_this_process();
        assert!(connections.are_between(&sockets, &sockets));
        let needs = connections.needs(inode_of(&here));
        assert_eq!(needs, Some(CriuOption::TcpEstablished));
        assert_eq!(connections.needs(listening), None);
    }
}
