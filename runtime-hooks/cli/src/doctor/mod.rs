//! `stasis doctor`: what is wrong with this machine, the evidence, and what to do. docs/doctor.md
//! lists all its findings.

mod containers;
mod copying;
mod criu_settings;
mod engines;
mod exposed;
mod gpus;
mod installed;
mod node;
mod room;
mod shims;
mod toolkit;

use std::fmt;

use serde::Serialize;
use stasis_config::{Settings, SettingsError};
use stasis_engine::preflight::capabilities::Capabilities;
use stasis_gpu::cuda::nvml::Inventory;

use installed::Installed;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, as in docs/doctor.md: "criu-missing".
    pub id: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// The evidence.
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

/// All findings.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// Faults first, healthy groups last.
    pub findings: Vec<Finding>,
}

/// Looks at this machine. Tries its build of the driver, if it was not tried yet; else nothing is
/// changed. If the settings cannot be used, the defaults take their place.
#[must_use]
pub fn doctor(loaded: Result<Settings, SettingsError>) -> Diagnosis {
    let mut findings = vec![];
    let settings = loaded.unwrap_or_else(|error| {
        findings.push(node::settings(&error));
        Settings::default()
    });
    let programs = installed::installed(&settings);
    let inventory = Inventory::read(&settings);
    let known = inventory.as_ref().ok();
    let groups = [
        ("settings", findings),
        (
            "node",
            node::findings(&settings, &Capabilities::probe(&settings)),
        ),
        (
            "programs",
            programs.iter().map(Installed::finding).collect(),
        ),
        ("exposed", exposed::findings(&settings, &programs)),
        ("gpus", gpus::findings(&settings, inventory.as_ref())),
        ("room", room::findings(&settings, known)),
        ("toolkit", toolkit::findings()),
        ("engines", engines::findings()),
        ("containers", containers::findings(known)),
        ("shims", shims::findings()),
    ];
    let mut findings: Vec<Finding> = groups.into_iter().flat_map(or_in_order).collect();
    findings.sort_by_key(|finding| finding.verdict);
    Diagnosis { findings }
}

/// Tries this machine's build of the driver, if it was not tried yet, and looks at nothing else.
#[must_use]
pub fn self_test(settings: &Settings) -> Diagnosis {
    let inventory = Inventory::read(settings);
    let mut findings = vec![gpus::of_driver(inventory.as_ref())];
    findings.extend(inventory.is_ok().then(|| copying::finding(settings)));
    Diagnosis { findings }
}

/// Reports a group without findings as in order.
fn or_in_order((group, found): (&str, Vec<Finding>)) -> Vec<Finding> {
    if !found.is_empty() {
        return found;
    }
    vec![ok(group, "nothing is wrong".to_owned())]
}

impl Diagnosis {
    /// Returns whether nothing is at fault.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.count(Verdict::Fault) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        let is_it = |finding: &&Finding| finding.verdict == verdict;
        self.findings.iter().filter(is_it).count()
    }
}

/// Makes a finding of a fact, or of a group in which nothing is wrong.
fn ok(id: &str, evidence: String) -> Finding {
    finding(Verdict::Ok, id, evidence, String::new())
}

fn fault(id: &str, evidence: String, remedy: impl Into<String>) -> Finding {
    finding(Verdict::Fault, id, evidence, remedy.into())
}

fn warning(id: &str, evidence: String, remedy: impl Into<String>) -> Finding {
    finding(Verdict::Warning, id, evidence, remedy.into())
}

fn finding(verdict: Verdict, id: &str, evidence: String, remedy: String) -> Finding {
    Finding {
        id: id.to_owned(),
        verdict,
        evidence,
        remedy,
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding {
            id,
            verdict,
            evidence,
            remedy,
        } in &self.findings
        {
            writeln!(f, "{verdict:7} {id}: {evidence}")?;
            if !remedy.is_empty() {
                writeln!(f, "        {remedy}")?;
            }
        }
        let (faults, warnings) = (self.count(Verdict::Fault), self.count(Verdict::Warning));
        write!(f, "faults: {faults}, warnings: {warnings}")
    }
}
