//! Unix connections of a container's processes with others, which no image has: half of a
//! connection cannot be dumped (criu/sk-unix.c, `__dump_external_socket`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;

use stasis_config::BlockerKind;
use stasis_linux::ProcessRef;
use stasis_linux::process::network::{in_network, network_of};
use stasis_linux::process::unix_sockets::{UnixSocket, unix_sockets};
use stasis_linux::procfs::{Namespace, descriptors, gone_is_none, namespace_of, processes};

use super::asked::Asked;
use super::blocker::Finding;
use super::lasting::{MOMENT, lasting};
use super::open_files::socket_inode;
use super::tcp::Sockets;
use crate::request::CriuOption;

/// This many sockets are looked at again, and looked for elsewhere. One that stays is enough.
const MOST: usize = 1024;

/// The Unix sockets of all processes that CRIU dumps.
#[derive(Debug, Default)]
pub(super) struct UnixConnections {
    namespaces: Vec<Namespace>,
    /// The sockets of the network namespaces that were read.
    all: HashMap<u64, UnixSocket>,
    /// The inodes of all their sockets, each with a process that has it open.
    held: BTreeMap<u64, Holder>,
}

/// A process, and a descriptor of it.
#[derive(Debug, Clone)]
struct Holder {
    pid: i32,
    name: String,
    number: u32,
}

/// A socket whose other end is not dumped.
#[derive(Debug)]
struct Half {
    holder: Holder,
    inode: u64,
    peer: u64,
}

impl UnixConnections {
    pub(super) fn see(&mut self, process: &ProcessRef, sockets: &Sockets) -> io::Result<()> {
        if sockets.is_empty() {
            return Ok(());
        }
        self.read_of(process.pid())?;
        let held = sockets
            .iter()
            .filter(|(inode, _)| self.all.contains_key(inode));
        let held: Vec<_> = held.map(|(inode, number)| (*inode, *number)).collect();
        for (inode, number) in held {
            self.held.entry(inode).or_insert_with(|| Holder {
                pid: process.pid(),
                name: process.name().to_owned(),
                number,
            });
        }
        Ok(())
    }

    /// Reads a process's network namespace; nothing is known of a kernel that does not answer.
    fn read_of(&mut self, pid: i32) -> io::Result<()> {
        let Some(namespace) = namespace_of(pid, "net")? else {
            return Ok(());
        };
        if !self.namespaces.contains(&namespace) {
            self.namespaces.push(namespace);
            let Some(network) = gone_is_none(network_of(pid))? else {
                return Ok(());
            };
            let read = match network {
                Some(network) => in_network(network.as_fd(), unix_sockets),
                None => unix_sockets(),
            };
            self.all.extend(read.unwrap_or_default());
        }
        Ok(())
    }

    /// Returns connections that last. The other end's holder is named, and has to exist: the end
    /// may be on its way to one of the container's processes (SCM_RIGHTS), which CRIU dumps.
    pub(super) fn findings(&self, asked: &Asked) -> io::Result<Vec<Finding>> {
        let halves: Vec<_> = self.halves(asked).take(MOST).collect();
        if halves.is_empty() {
            return Ok(Vec::new());
        }
        let others = holders(&halves.iter().map(|half| half.peer).collect())?;
        let told = halves
            .into_iter()
            .filter(|half| others.contains_key(&half.peer));
        let lasting = lasting(told.collect(), MOMENT, |mut found: Vec<Half>| {
            let mut now = Self::default();
            for half in &found {
                now.read_of(half.holder.pid)?;
            }
            let peer = |inode| now.all.get(&inode).and_then(|socket| socket.peer);
            found.retain(|half| peer(half.inode) == Some(half.peer));
            Ok(found)
        })?;
        let mut told = BTreeSet::new();
        let first = lasting
            .into_iter()
            .filter(|half| told.insert(half.holder.pid));
        Ok(first.map(|half| half.finding(&others)).collect())
    }

    /// Returns the halves. CRIU finds a datagram's other end by its name, if it is asked for that.
    fn halves(&self, asked: &Asked) -> impl Iterator<Item = Half> {
        self.held.iter().filter_map(|(inode, holder)| {
            let socket = self.all.get(inode)?;
            let peer = socket.peer.filter(|peer| !self.held.contains_key(peer))?;
            let is_named = self.all.get(&peer)?.is_named;
            let is_found_again = socket.is_datagram && is_named;
            (!(is_found_again && asked.has(CriuOption::ExtUnixSk))).then(|| Half {
                holder: holder.clone(),
                inode: *inode,
                peer,
            })
        })
    }
}

impl Half {
    fn finding(self, others: &HashMap<u64, String>) -> Finding {
        let other = others.get(&self.peer).map_or("nobody", String::as_str);
        let number = self.holder.number;
        Finding {
            kind: BlockerKind::UnixConnection,
            pid: self.holder.pid,
            name: self.holder.name,
            evidence: format!("its socket {number} is connected with {other}"),
        }
    }
}

/// Returns the processes on this machine that have these sockets open, and existed before us: later
/// ones may be of the container, and were not seen.
fn holders(sockets: &BTreeSet<u64>) -> io::Result<HashMap<u64, String>> {
    let began = ProcessRef::own()?.start_time();
    let mut found = HashMap::new();
    for pid in processes()? {
        // A process that cannot be read counts as no holder.
        let Ok(descriptors) = descriptors(pid) else {
            continue;
        };
        for descriptor in descriptors {
            let target = String::from_utf8_lossy(descriptor.target());
            let inode = socket_inode(&target).filter(|inode| sockets.contains(inode));
            if let Some(inode) = inode
                && !found.contains_key(&inode)
                && let Some(process) = ProcessRef::open(pid)?
                && process.start_time() <= began
            {
                found.insert(inode, process.to_string());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::preflight::open_files::OpenFiles;

    #[test]
    fn the_other_end_is_somebody_elses_or_it_is_no_half() {
        let (kept, given) = UnixStream::pair().unwrap();
        let inside = UnixStream::pair().unwrap();
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(given)))
            .spawn()
            .unwrap();
        let process = |pid| ProcessRef::open(pid).unwrap().unwrap();
        let own = process(i32::try_from(std::process::id()).unwrap());
        let theirs = process(i32::try_from(child.id()).unwrap());
        let sockets = |process: &ProcessRef| OpenFiles::read(process, None).unwrap().sockets;
        let asked = Asked::of(stasis_config::Flavor::Runc, &BTreeSet::new(), None);
        let mut connections = UnixConnections::default();
        connections.see(&theirs, &sockets(&theirs)).unwrap();
        let found = connections.findings(&asked).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].pid, found[0].name.as_str()),
            (theirs.pid(), "sleep")
        );
        let expected = format!("its socket 0 is connected with {own}");
        assert_eq!(found[0].evidence, expected);
        let inode = |socket| rustix::fs::fstat(socket).unwrap().st_ino;
        let ours = [&kept, &inside.0, &inside.1].map(inode);
        let mut mine = sockets(&own);
        mine.retain(|held, _| ours.contains(held));
        connections.see(&own, &mine).unwrap();
        assert_eq!(connections.findings(&asked).unwrap(), []);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
