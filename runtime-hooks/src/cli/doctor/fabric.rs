//! A machine whose GPUs are tied by switches needs the fabric manager, of the driver's version:
//! programs do not start with CUDA without it.

use std::fs;

use stasis_linux::ProcessRef;

use super::Finding;
use super::fault;
use crate::cli::programs::answer_of;

const SWITCHES: &str = "nvidia-nvswitch";
const PROGRAM: &str = "nv-fabricmanager";
const PID: &str = "/run/nvidia-fabricmanager/nv-fabricmanager.pid";

pub(super) fn finding(driver: Option<&str>) -> Option<Finding> {
    let nodes = fs::read_dir("/dev").ok()?.flatten();
    let mut names = nodes.map(|node| node.file_name().to_string_lossy().into_owned());
    let switch = names.find(|name| name.starts_with(SWITCHES))?;
    let pid = fs::read_to_string(PID).ok();
    let pid = pid.and_then(|pid| pid.trim().parse().ok());
    let runs = pid.is_some_and(|pid| matches!(ProcessRef::open(pid), Ok(Some(_))));
    if runs {
        return of_version(&answer_of(PROGRAM)?, driver?);
    }
    Some(fault(
        "fabric-manager",
        format!("/dev/{switch} is there, and no fabric manager runs ({PID})"),
        "systemctl enable --now nvidia-fabricmanager, of the driver's version",
    ))
}

/// "Fabric Manager version is : 580.159.04", whatever stands before the number.
fn of_version(answer: &str, driver: &str) -> Option<Finding> {
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let version = answer.split_whitespace().find(is_version)?;
    (version != driver).then(|| {
        fault(
            "fabric-manager",
            format!("the fabric manager is of version {version}, and the driver of {driver}"),
            "install both of one version, and restart the machine",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_one_version() {
        let of = |answer| of_version(answer, "580.159.04");
        assert_eq!(of("Fabric Manager version is : 580.159.04\n"), None);
        assert_eq!(of("no version."), None);
        let found = of("Fabric Manager version is : 570.124.06\n").unwrap();
        assert!(found.evidence.contains("570.124.06"), "{found:?}");
    }
}
