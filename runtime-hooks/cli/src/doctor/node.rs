//! The settings, the kernel, CRIU and the low-level runtime.

use std::fs;
use std::path::Path;

use stasis_config::{Settings, SettingsError};
use stasis_engine::low_level::criu_program::{CriuProgram, FoundBy};
use stasis_engine::low_level::criu_version::CriuVersion;
use stasis_engine::preflight::capabilities::{Capabilities, Cgroups, Criu};
use stasis_linux::error_chain;

use super::{Finding, criu_settings, fault, ok, warning};
use crate::programs::exit_of;

/// "1" where SELinux forbids what its policy does not allow.
const SELINUX: &str = "/sys/fs/selinux/enforce";
/// The paths of `make install` and of a package.
const INSTALLED: [&str; 2] = ["/usr/local/bin/stasis-runtime", "/usr/bin/stasis-runtime"];

/// Reports settings that can be used.
pub(super) fn settings_in(path: &Path) -> Finding {
    let path = path.display();
    ok(
        "settings",
        match path.to_string().as_str() {
            file if Path::new(file).exists() => file.to_owned(),
            none => format!("the defaults: there is no {none}"),
        },
    )
}

pub(super) fn settings(error: &SettingsError) -> Finding {
    let remedy = "correct it: until then every checkpoint and restore fails";
    fault("settings", error_chain(error), remedy)
}

pub(super) fn findings(settings: &Settings, has: &Capabilities) -> Vec<Finding> {
    let mut found = of(has);
    if let Err(error) = settings.runtime.resolve() {
        found.push(no_runtime(&error));
    }
    if let Some(criu) = CriuProgram::installed() {
        found.extend(check_by(&criu));
        found.extend(path_of(&criu));
    }
    found.extend(criu_settings::findings());
    let enforces = fs::read_to_string(SELINUX).ok();
    found.extend(enforces.and_then(|text| selinux(&text)));
    if INSTALLED.iter().all(|program| Path::new(program).exists()) {
        found.push(warning(
            "two-installations",
            format!("both {} exist", INSTALLED.join(" and ")),
            "`make uninstall`, or remove the package: engines may call either",
        ));
    }
    found
}

fn no_runtime(error: &SettingsError) -> Finding {
    let evidence = match error {
        SettingsError::Runtime { path, .. } => format!(
            "{} is not installed: containers cannot start with stasis",
            path.display()
        ),
        other => error_chain(other),
    };
    let remedy =
        "install runc or crun, and name it in the settings if it is not runc (runtime.path)";
    fault("low-level-runtime", evidence, remedy)
}

fn of(has: &Capabilities) -> Vec<Finding> {
    let mut found = vec![of_criu(&has.criu)];
    found.push(match &has.plugin {
        Some(plugin) => ok("criu-plugin", plugin.display().to_string()),
        None => {
            let evidence = "the plugin for CRIU (gpu_contents.plugin) is missing: the driver and \
                            CRIU move GPU contents, with one thread each";
            let evidence = evidence.to_owned();
            warning("criu-plugin", evidence, "install stasis again")
        }
    });
    let kernel = &has.kernel;
    let (release, bytes) = (&kernel.release, kernel.page_size);
    found.push(ok("kernel", format!("{release}, pages of {bytes} bytes")));
    let version = match has.cgroups {
        Cgroups::V1 => "version 1",
        Cgroups::V2 => "version 2",
        Cgroups::Hybrid => "versions 1 and 2",
        Cgroups::None => {
            let evidence = "no cgroups are mounted: no container is found".to_owned();
            found.push(fault("cgroups", evidence, "mount them at /sys/fs/cgroup"));
            return found;
        }
    };
    found.push(ok("cgroups", version.to_owned()));
    found
}

fn of_criu(criu: &Criu) -> Finding {
    let needed = CriuVersion::NEEDED;
    let remedy = format!("install CRIU {needed} or newer, or the package stasis-criu");
    match criu {
        Criu::Version(version) if *version < needed => fault(
            "criu-version",
            format!("CRIU {version} is too old: there are no checkpoints and no restores"),
            remedy,
        ),
        Criu::Version(version) => ok("criu", version.to_string()),
        Criu::Missing => {
            let evidence = "criu is not installed: there are no checkpoints and no restores";
            fault("criu-missing", evidence.to_owned(), remedy)
        }
        Criu::Unknown(why) => fault(
            "criu-unknown",
            why.clone(),
            "check whether `criu --version` works",
        ),
    }
}

/// Has CRIU check that the kernel has what every dump needs (criu(8), "check").
fn check_by(criu: &CriuProgram) -> Option<Finding> {
    let status = exit_of(&criu.path, "check")?;
    (!status.success()).then(|| {
        fault(
            "criu-check",
            format!("`criu check` fails ({status})"),
            "`criu check` shows what the kernel lacks",
        )
    })
}

/// podman, and containerd for pods, look for CRIU themselves before they call a runtime.
fn path_of(criu: &CriuProgram) -> Option<Finding> {
    let path = criu.path.display();
    (criu.found_by == FoundBy::Stasis).then(|| {
        warning(
            "criu-path",
            format!("{path} is used, and not in PATH, where podman and containerd's CRI look"),
            format!("ln -s {path} /usr/local/sbin/criu, if they are to make checkpoints"),
        )
    })
}

fn selinux(enforces: &str) -> Option<Finding> {
    (enforces.trim() == "1").then(|| {
        warning(
            "selinux",
            format!("SELinux enforces its policy ({SELINUX}), with which stasis was not tried"),
            "try it first; where containers lack execmem, the driver's one thread copies \
             (docs/internals/design.md)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::fixtures::capable;

    #[test]
    fn selinux_counts_where_it_enforces() {
        assert_eq!(selinux("0\n"), None);
        assert_eq!(
            selinux("1\n").map(|found| found.id).as_deref(),
            Some("selinux")
        );
    }

    #[test]
    fn a_machine_without_runc_gets_one_clear_line() {
        let mut settings = Settings::default();
        settings.runtime.path = "no-such-runtime".into();
        let error = settings.runtime.resolve().unwrap_err();
        let expected = "no-such-runtime is not installed: containers cannot start with stasis";
        assert_eq!(no_runtime(&error).evidence, expected);
    }

    #[test]
    fn what_is_missing_is_found() {
        let ids = |has: &Capabilities| {
            let found = of(has).into_iter();
            let wrong = found.filter(|finding| finding.verdict != Verdict::Ok);
            wrong.map(|finding| finding.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&capable()), [""; 0]);
        let mut has = capable();
        has.criu = Criu::Missing;
        let found = of(&has).remove(0);
        assert_eq!(
            found.to_string().lines().count(),
            2,
            "a line, and the remedy: {found}"
        );
        assert!(
            found.evidence.starts_with("criu is not installed: "),
            "{found}"
        );
        has.cgroups = Cgroups::None;
        has.criu = Criu::Unknown("it hangs".to_owned());
        has.plugin = None;
        assert_eq!(ids(&has), ["criu-unknown", "criu-plugin", "cgroups"]);
    }

    #[test]
    fn engines_that_look_for_criu_themselves_are_named() {
        let found = |found_by| {
            path_of(&CriuProgram {
                path: "/usr/lib/stasis/criu/criu".into(),
                version: Ok(CriuVersion::NEEDED),
                found_by,
            })
        };
        assert_eq!(found(FoundBy::All), None);
        assert_eq!(found(FoundBy::Stasis).unwrap().id, "criu-path");
    }
}
