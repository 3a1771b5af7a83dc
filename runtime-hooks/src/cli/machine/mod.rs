//! `stasis check --machine`: what the machine can do, and what happens without it.

mod advisories;
mod exposed;
mod gpu_contents;
mod programs;
mod version;

use std::fmt;

use serde::Serialize;
use stasis_config::Settings;

use crate::bulk_memory::plugin;
pub use crate::cli::machine::advisories::{Finding, Verdict};
pub use crate::cli::machine::gpu_contents::Copying;
pub use crate::cli::machine::programs::{Installed, Known};
pub(crate) use crate::cli::machine::programs::{answer_of, exit_of, version_of};
pub use crate::cli::machine::version::{Program, Version};
use crate::preflight::capabilities::{Capabilities, Cgroups, Criu, driver_version};

/// What a machine can do.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// The capabilities.
    #[serde(flatten)]
    pub capabilities: Capabilities,
    /// The version of NVIDIA's driver; `None` if there is none.
    pub driver: Option<String>,
    /// Who copies GPU contents; `None` without a driver.
    pub gpu_contents: Option<Copying>,
    /// What is done in another way, or not at all, and why.
    pub fall_backs: Vec<String>,
    /// The low-level runtime and containerd.
    pub programs: Vec<Installed>,
    /// Versions of programs with known holes.
    pub findings: Vec<Finding>,
}

/// Looks at this machine. Whether this build of the driver can be helped with its copying is tried
/// on a GPU, once, which takes some seconds; else nothing is changed.
#[must_use]
pub fn machine(settings: &Settings) -> Machine {
    let capabilities = Capabilities::probe(settings);
    let driver = driver_version(settings);
    let gpu_contents = driver.is_ok().then(|| Copying::find_out(settings));
    let mut fall_backs = fall_backs(settings, &capabilities, driver.as_ref().err());
    fall_backs.extend(gpu_contents.as_ref().and_then(Copying::fall_back));
    let programs = programs::installed(settings);
    let mut findings = programs::findings(&programs, &capabilities.criu);
    findings.extend(exposed::findings(settings, &programs));
    Machine {
        fall_backs,
        findings,
        programs,
        driver: driver.ok(),
        gpu_contents,
        capabilities,
    }
}

fn fall_backs(settings: &Settings, has: &Capabilities, no_driver: Option<&String>) -> Vec<String> {
    let mut lines = Vec::new();
    match &has.criu {
        Criu::Version(_) => {}
        Criu::Missing => lines.push("nothing is checkpointed: no criu is in PATH".to_owned()),
        Criu::Unknown(why) => lines.push(format!("nothing may be checkpointed: {why}")),
    }
    if let Err(why) = plugin::usable(&settings.gpu_contents, has) {
        lines.push(format!(
            "the driver and CRIU move GPU contents, with one thread each: {why}"
        ));
    }
    if has.cgroups == Cgroups::None {
        lines.push("no container is found: no cgroups are mounted".to_owned());
    }
    if let Some(why) = no_driver {
        lines.push(format!(
            "containers are checkpointed without GPU state only: {why}"
        ));
    }
    lines
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capabilities {
            kernel,
            cgroups,
            criu,
            plugin,
        } = &self.capabilities;
        writeln!(f, "kernel {}", kernel.release)?;
        writeln!(f, "  pages of {} bytes", kernel.page_size)?;
        let cgroups = match cgroups {
            Cgroups::V1 => "version 1",
            Cgroups::V2 => "version 2",
            Cgroups::Hybrid => "versions 1 and 2",
            Cgroups::None => "none",
        };
        writeln!(f, "cgroups: {cgroups}")?;
        match criu {
            Criu::Version(version) => writeln!(f, "CRIU {version}")?,
            Criu::Missing => writeln!(f, "CRIU: none")?,
            Criu::Unknown(_) => writeln!(f, "CRIU: of an unknown version")?,
        }
        for program in &self.programs {
            writeln!(f, "{program}")?;
        }
        match plugin {
            Some(plugin) => writeln!(f, "plugin: {}", plugin.display())?,
            None => writeln!(f, "plugin: none")?,
        }
        write!(f, "driver: {}", self.driver.as_deref().unwrap_or("none"))?;
        if let Some(copying) = &self.gpu_contents {
            write!(f, "\n{copying}")?;
        }
        for line in &self.fall_backs {
            write!(f, "\n{line}")?;
        }
        for finding in &self.findings {
            write!(f, "\n{finding}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_memory::plugin::tests::capable;

    #[test]
    fn what_is_missing_is_told_with_its_fall_back() {
        let settings = Settings::default();
        assert_eq!(
            fall_backs(&settings, &capable(), None),
            Vec::<String>::new()
        );
        let mut without = capable();
        without.criu = Criu::Missing;
        without.cgroups = Cgroups::None;
        let lines = fall_backs(&settings, &without, Some(&"no library".to_owned()));
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[1].contains("the driver and CRIU move GPU contents"));
        assert!(lines[3].ends_with("no library"));
    }
}
