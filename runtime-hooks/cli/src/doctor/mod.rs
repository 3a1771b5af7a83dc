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
mod own;
mod room;
mod rootless;
mod shims;
mod toolkit;

use std::fmt;
use std::path::Path;

use serde::Serialize;
use stasis_config::{DEFAULT_PATH, Settings, SettingsError};
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

stasis_config::words! {
    /// How bad a finding is.
    Verdict {
        /// Something does not work.
        Fault = "fault",
        /// Possibly harmless, or it costs something.
        Warning = "warning",
        /// In order.
        Ok = "ok",
    }
}

/// All findings.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// Faults first, healthy groups last.
    pub findings: Vec<Finding>,
}

/// Looks at this machine. Tries its build of the driver, if it was not tried yet; else nothing is
/// changed. If the settings cannot be used, the defaults take their place. `config`: their file, if
/// one was named.
#[must_use]
pub fn doctor(loaded: Result<Settings, SettingsError>, config: Option<&Path>) -> Diagnosis {
    let of_settings = match &loaded {
        Ok(_) => node::settings_in(config.unwrap_or(Path::new(DEFAULT_PATH))),
        Err(error) => node::settings(error),
    };
    let settings = loaded.unwrap_or_default();
    let programs = installed::installed(&settings);
    let inventory = Inventory::read(&settings);
    let known = inventory.as_ref().ok();
    let mut findings = own::findings();
    findings.push(of_settings);
    findings.extend(gpus::findings(&settings, inventory.as_ref()));
    let capabilities = Capabilities::probe(&settings);
    findings.extend(node::findings(&settings, &capabilities));
    findings.extend(programs.iter().filter_map(Installed::finding));
    findings.extend(engines::findings());
    findings.extend(room::findings(&settings, known));
    let groups = [
        (
            "containers",
            containers::findings(known),
            containers::fact(),
        ),
        (
            "rootless",
            rootless::findings(),
            "no user runs containers without root".to_owned(),
        ),
        ("shims", shims::findings(), shims::fact()),
        (
            "toolkit",
            toolkit::findings(),
            "no hook of NVIDIA's container toolkit".to_owned(),
        ),
        (
            "exposed",
            exposed::findings(&settings, &programs),
            "only root can change the programs and libraries that root runs".to_owned(),
        ),
    ];
    findings.extend(groups.into_iter().flat_map(or_fact));
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

/// Reports the fact of a group without findings.
fn or_fact((group, found, fact): (&str, Vec<Finding>, String)) -> Vec<Finding> {
    match found.is_empty() {
        true => vec![ok(group, fact)],
        false => found,
    }
}

impl Diagnosis {
    /// Returns whether nothing is at fault.
    pub fn is_sound(&self) -> bool {
        self.count(Verdict::Fault) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        let is_it = |finding: &&Finding| finding.verdict == verdict;
        self.findings.iter().filter(is_it).count()
    }
}

/// Makes a finding of a fact.
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

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = self.verdict.name();
        write!(f, "{verdict:7} {}: {}", self.id, self.evidence)?;
        match self.remedy.as_str() {
            "" => Ok(()),
            remedy => write!(f, "\n        {remedy}"),
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let (faults, warnings) = (self.count(Verdict::Fault), self.count(Verdict::Warning));
        write!(f, "faults: {faults}, warnings: {warnings}")
    }
}
