//! The tree or container whose CUDA processes are meant.

use std::io;

use stasis_linux::procfs::processes;
use stasis_linux::tree::descendants;
use stasis_linux::{ProcessRef, Snapshot};

use super::Error;
use super::arguments::Arguments;
use super::stopped::{held, open};
use crate::cli::locate::{Located, locate};
use crate::cuda::Driver;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::process_set::{ProcessStates, query_states};
use crate::preflight::peer_access::PeerAccess;

/// The tree or container whose CUDA processes are meant.
pub(super) enum Scope {
    Tree(ProcessRef),
    Container(Located),
}

impl Scope {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Error> {
        match (&arguments.target.container, arguments.target.tree) {
            (Some(id), _) => Ok(Self::Container(locate(id, arguments.root.as_deref())?)),
            (None, pid) => Ok(Self::Tree(open(pid.unwrap_or_default())?)),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Tree(root) => format!("the tree of {root}"),
            Self::Container(found) => format!("container {}", found.container.id()),
        }
    }

    /// The pid of a process in the record.
    pub(super) fn pid_inside(&self, process: &ProcessRef) -> i32 {
        match self {
            Self::Tree(_) => process.pid(),
            Self::Container(found) => found.container.pid_inside(process).unwrap_or(process.pid()),
        }
    }

    pub(super) fn peer_access(&self) -> PeerAccess {
        match self {
            Self::Tree(_) => PeerAccess::Unknown,
            Self::Container(found) => PeerAccess::of(&found.container),
        }
    }

    pub(super) fn snapshot(&self) -> io::Result<Snapshot> {
        match self {
            // Orphans belong to the process that adopted them.
            Self::Tree(root) => Snapshot::take(root, &descendants(root.pid(), processes()?)?),
            Self::Container(found) => found.container.snapshot(),
        }
    }

    pub(super) fn members(&self, driver: &dyn Driver) -> Result<ProcessStates, ProcessFailure> {
        let init = match self {
            Self::Tree(root) => root,
            Self::Container(found) => found.container.init(),
        };
        let snapshot = self.snapshot();
        let snapshot = snapshot.map_err(|error| ProcessFailure::of_query(init, error))?;
        query_states(driver, snapshot.into_candidates())
    }

    /// The first query of the members, before all of them are known to answer.
    pub(super) fn query_members(&self, driver: &dyn Driver) -> Result<ProcessStates, Error> {
        for process in self.snapshot()?.candidates() {
            if let Some(held) = held(process, || None)? {
                return Err(Error::Held {
                    pid: process.pid(),
                    name: process.name().to_owned(),
                    held,
                });
            }
        }
        let members = self.members(driver).map_err(Error::Untouched)?;
        if members.is_empty() {
            return Err(Error::NoMembers(self.name()));
        }
        Ok(members)
    }
}
