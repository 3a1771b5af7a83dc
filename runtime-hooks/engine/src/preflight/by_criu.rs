//! Blockers of CRIU's dump of a process, as `/proc` shows them before anything is touched.

use std::io;

use stasis_config::BlockerKind;
use stasis_linux::ProcessRef;

use super::asked::Asked;
use super::blocker::Finding;
use super::lasting::{MOMENT, lasting};
use super::open_files::undumpable::Undumpable;
use super::open_files::{IO_URING, OpenFiles, watches};
use super::tcp::Connections;
use super::unix::UnixConnections;
use crate::request::CriuOption;

/// This many sockets of a process are looked at again. One that stays is enough.
const MOST_SOCKETS: usize = 1024;

/// Finds devices and rings, of any process.
pub(super) fn devices(process: &ProcessRef, held: &OpenFiles) -> Vec<Finding> {
    let evidence = [
        (
            BlockerKind::Gdrdrv,
            held.find(|path| path.starts_with("/dev/gdrdrv")),
        ),
        (
            BlockerKind::Rdma,
            held.find(|path| path.starts_with("/dev/infiniband/")),
        ),
        (BlockerKind::IoUring, held.find(|path| path == IO_URING)),
    ];
    named(process, evidence)
}

/// Finds what CRIU does not dump of a process, or only if asked to.
fn not_dumped(process: &ProcessRef, held: &Undumpable, asked: &Asked) -> Vec<Finding> {
    let moved = held.moved.as_ref();
    let moved = moved.filter(|_| !asked.has(CriuOption::LinkRemap));
    let deleted = held.deleted.as_ref();
    let deleted = deleted.filter(|(_, bytes)| *bytes > asked.ghost_limit());
    let deleted = deleted.map(|(file, bytes)| {
        let limit = asked.ghost_limit();
        format!("{file}, of {bytes} bytes, and CRIU's ghost-limit is {limit}")
    });
    let moved = moved.map(|file| format!("{file}, and it has another name"));
    let evidence = [
        (BlockerKind::MessageQueue, held.queue.as_ref()),
        (BlockerKind::KernelObject, held.object.as_ref()),
    ];
    let files = [deleted, moved].map(|evidence| (BlockerKind::DeletedFile, evidence));
    let mut found = named(process, files);
    found.extend(named(process, evidence));
    found
}

fn named<E: ToString>(
    process: &ProcessRef,
    evidence: impl IntoIterator<Item = (BlockerKind, Option<E>)>,
) -> Vec<Finding> {
    let finding = |(kind, evidence): (_, Option<E>)| {
        Some(Finding {
            kind,
            pid: process.pid(),
            name: process.name().to_owned(),
            evidence: evidence?.to_string(),
        })
    };
    evidence.into_iter().filter_map(finding).collect()
}

/// Collects the findings on the processes that CRIU dumps.
#[derive(Debug)]
pub(super) struct ByCriu<'a> {
    asked: &'a Asked,
    found: Vec<Finding>,
    connected: Vec<Connected>,
    unix: UnixConnections,
}

impl<'a> ByCriu<'a> {
    pub(super) fn of(asked: &'a Asked) -> Self {
        Self {
            asked,
            found: Vec::new(),
            connected: Vec::new(),
            unix: UnixConnections::default(),
        }
    }

    /// Looks at one of these processes.
    pub(super) fn see(
        &mut self,
        process: &ProcessRef,
        held: &OpenFiles,
        connections: &Connections,
    ) -> io::Result<()> {
        let found = not_dumped(process, &held.undumpable, self.asked);
        self.found.extend(found);
        if !self.asked.finds_watches() {
            let number = watches::not_found(process, &held.undumpable.watches)?;
            let evidence = number.map(|number| format!("descriptor {number} (inotify)"));
            self.found
                .extend(named(process, [(BlockerKind::Watch, evidence)]));
        }
        let connected = Connected::of(process, held, connections, self.asked);
        self.connected.extend(connected);
        self.unix.see(process, &held.sockets)
    }

    /// Returns the blockers, once all processes were seen.
    pub(super) fn findings(self) -> io::Result<Vec<Finding>> {
        let mut found = self.found;
        found.extend(lasting_connections(self.connected)?);
        found.extend(self.unix.findings(self.asked)?);
        Ok(found)
    }
}

/// The connections of one process for which CRIU lacks the option.
#[derive(Debug)]
struct Connected {
    pid: i32,
    name: String,
    /// Descriptor, inode and the option that it needs.
    sockets: Vec<(u32, u64, CriuOption)>,
}

impl Connected {
    /// `None` if it has none.
    fn of(
        process: &ProcessRef,
        held: &OpenFiles,
        connections: &Connections,
        asked: &Asked,
    ) -> Option<Self> {
        let needs = |(inode, number): (&u64, &u32)| {
            let option = connections.needs(*inode);
            let option = option.filter(|option| !asked.has(*option))?;
            Some((*number, *inode, option))
        };
        let all = held.sockets.iter().filter_map(needs);
        let sockets: Vec<_> = all.take(MOST_SOCKETS).collect();
        (!sockets.is_empty()).then(|| Self {
            pid: process.pid(),
            name: process.name().to_owned(),
            sockets,
        })
    }

    fn finding(self) -> Option<Finding> {
        let (number, _, option) = self.sockets.first()?;
        let is = match option {
            CriuOption::TcpSkipInFlight => "listens, and has connections that are not accepted",
            _ => "is connected",
        };
        let evidence = format!("its socket {number} {is}, and CRIU is not asked for {option}");
        Some(Finding {
            kind: BlockerKind::TcpConnection,
            pid: self.pid,
            name: self.name,
            evidence,
        })
    }
}

/// Returns those that stay: a request that is answered is over before CRIU dumps anything.
fn lasting_connections(found: Vec<Connected>) -> io::Result<Vec<Finding>> {
    let lasting = lasting(found, MOMENT, |mut found| {
        let mut connections = Connections::default();
        for process in &found {
            connections.read_of(process.pid)?;
        }
        let needs = |inode, option| connections.needs(inode) == Some(option);
        for process in &mut found {
            let sockets = &mut process.sockets;
            sockets.retain(|(_, inode, option)| needs(*inode, *option));
        }
        found.retain(|process| !process.sockets.is_empty());
        Ok(found)
    })?;
    Ok(lasting.into_iter().filter_map(Connected::finding).collect())
}
