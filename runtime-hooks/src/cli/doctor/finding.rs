//! One thing that was found of this machine.

use std::fmt;

use serde::Serialize;

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, as docs/doctor.md has it: "criu-missing".
    pub id: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// Why it is known.
    pub evidence: String,
    /// The remedy.
    pub remedy: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Something does not work.
    Fault,
    /// Possibly harmless, or it costs something.
    Warning,
    /// In order.
    Ok,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fault => "fault",
            Self::Warning => "warning",
            Self::Ok => "ok",
        })
    }
}
