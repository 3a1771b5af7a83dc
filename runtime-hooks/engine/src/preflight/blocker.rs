//! The texts for blockers of a checkpoint: the process, the evidence, the consequence and the way
//! out.

mod texts;

use std::fmt;

use serde::Serialize;
use stasis_config::{BlockerKind, DEFAULT_PATH, Settings};

/// Blockers of the driver, which cannot save or restore the process; the others are of CRIU's dump.
pub(crate) const OF_THE_DRIVER: [BlockerKind; 10] = [
    BlockerKind::FailedState,
    BlockerKind::NcclP2p,
    BlockerKind::PeerAccess,
    BlockerKind::SharedGpu,
    BlockerKind::Mps,
    BlockerKind::Mig,
    BlockerKind::ManagedMemory,
    BlockerKind::LostGpu,
    BlockerKind::Persistence,
    BlockerKind::UnknownGpus,
];
/// How to let a checkpoint begin in spite of blockers that `preflight.allow` does not take.
const WITH_SETTINGS_OF_THEIR_OWN: [(BlockerKind, &str); 2] = [
    (
        BlockerKind::ExecSession,
        "let it end: preflight.exec = \"allow\"",
    ),
    (
        BlockerKind::Persistence,
        "try it anyway: restore.persistence = \"ignore\"",
    ),
];
/// A job may have hundreds of processes, and an error is one line.
const LISTED: usize = 8;

/// One process that cannot be checkpointed as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind of blocker.
    pub kind: BlockerKind,
    /// The pid in our namespace.
    pub pid: i32,
    /// Its command name.
    pub name: String,
    /// The descriptor, mapping, thread, variable or state that shows the blocker.
    pub evidence: String,
}

/// The blockers of a container that the settings do not allow.
#[derive(Debug)]
pub struct Blockers {
    found: Vec<Finding>,
}

impl Blockers {
    /// Returns the findings if the settings allow them all; otherwise an error with the others.
    ///
    /// # Errors
    /// [`Blockers`], if a finding is not allowed.
    pub fn check(found: Vec<Finding>, settings: &Settings) -> Result<Vec<Finding>, Self> {
        let (allowed, found): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|finding| settings.allows(finding.kind));
        if found.is_empty() {
            Ok(allowed)
        } else {
            Err(Self { found })
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.pid, self.name, self.evidence)
    }
}

impl fmt::Display for Blockers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<BlockerKind> = self.found.iter().map(|finding| finding.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for (position, kind) in kinds.iter().enumerate() {
            if position > 0 {
                f.write_str("; ")?;
            }
            let of_kind = self.found.iter().filter(|finding| finding.kind == *kind);
            let listed: Vec<String> = of_kind.map(ToString::to_string).collect();
            write!(f, "{kind}: {}, seen in process ", consequence(*kind))?;
            f.write_str(&listed[..listed.len().min(LISTED)].join(", process "))?;
            if listed.len() > LISTED {
                write!(f, " and {} more", listed.len() - LISTED)?;
            }
            write!(f, "; {}", way_out(*kind))?;
        }
        for (kind, anyway) in WITH_SETTINGS_OF_THEIR_OWN {
            if kinds.contains(&kind) {
                kinds.retain(|other| *other != kind);
                write!(f, "; or {anyway} in {DEFAULT_PATH}")?;
            }
        }
        kinds.retain(|kind| kind.setting().is_some());
        if kinds.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = kinds.iter().map(|kind| format!("\"{kind}\"")).collect();
        write!(
            f,
            "; or try the checkpoint anyway: preflight.allow = [{}] in {DEFAULT_PATH}",
            names.join(", ")
        )
    }
}

impl std::error::Error for Blockers {}

/// Returns the known consequence of a blocker.
#[must_use]
pub fn consequence(kind: BlockerKind) -> &'static str {
    texts(kind).0
}

/// Returns the ways to remove a blocker.
#[must_use]
pub fn way_out(kind: BlockerKind) -> &'static str {
    texts(kind).1
}

fn texts(kind: BlockerKind) -> (&'static str, &'static str) {
    let texts = texts::ALL.iter().find(|(known, ..)| *known == kind);
    texts.map_or(("", ""), |(_, consequence, way_out)| (consequence, way_out))
}

#[cfg(test)]
mod tests;
