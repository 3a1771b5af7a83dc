//! Holes of the programs that stasis relies on, and the versions that close them. A distribution
//! closes them in older versions, too, and its packages do not say so in the version: hence a
//! warning and never a failure.

use std::fmt;

use serde::Serialize;

use super::version::{Program, Version};

/// Something about an installed program that an operator has to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The program and the first of its names: "runc-CVE-2024-21626".
    pub id: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub evidence: String,
    /// What to do.
    pub remedy: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Something does not work.
    Fault,
    /// It may be harmless, or costs something.
    Warning,
    /// It is in order.
    Ok,
}

/// A hole, or several that the same versions close.
struct Advisory {
    program: Program,
    names: &'static [&'static str],
    what: &'static str,
    /// The first version that has it.
    since: Version,
    /// The first version of each series that does not; those after the last one do not either.
    closed: &'static [Version],
}

const ANY: Version = Version::release(0, 0, 0);

/// As runc's CHANGELOG.md, crun's NEWS and the releases of containerd have it, 2026-11-25. What a
/// hole needs that stasis and its callers do not use (krun, say) is left out.
const ADVISORIES: &[Advisory] = &[
    Advisory {
        program: Program::Runc,
        names: &["CVE-2024-21626"],
        what: "a container gets at the host's files through a leaked descriptor",
        since: ANY,
        closed: &[Version::release(1, 1, 12)],
    },
    Advisory {
        program: Program::Runc,
        names: &["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"],
        what: "a container writes to the host's /proc through masked paths or /dev/console",
        since: ANY,
        closed: &[
            Version::release(1, 2, 8),
            Version::release(1, 3, 3),
            Version::candidate(1, 4, 0, 3),
        ],
    },
    Advisory {
        program: Program::Runc,
        names: &["CVE-2026-41579"],
        what: "an image whose /dev is a link has files of the host changed",
        since: ANY,
        closed: &[
            Version::release(1, 3, 6),
            Version::release(1, 4, 3),
            Version::candidate(1, 5, 0, 3),
        ],
    },
    Advisory {
        program: Program::Crun,
        names: &["CVE-2026-30892"],
        what: "`exec` with a user runs as another one",
        since: ANY,
        closed: &[Version::release(1, 27, 0)],
    },
    Advisory {
        program: Program::Crun,
        names: &["CVE-2026-47766"],
        what: "an image whose /dev is a link has files of the host changed",
        since: ANY,
        closed: &[Version::release(1, 28, 0)],
    },
    Advisory {
        program: Program::Crun,
        names: &["CVE-2026-88264", "CVE-2026-88265"],
        what: "an image whose /dev/console or /dev/null is a link has files of the host made or \
               changed",
        since: ANY,
        closed: &[Version::release(1, 30, 0)],
    },
    Advisory {
        program: Program::Containerd,
        names: &["CVE-2026-53492", "CVE-2026-53489", "CVE-2026-50195"],
        what: "a checkpoint that a pod is restored from brings host devices and mounts, reads \
               files of the host, and takes the names of images",
        since: Version::release(2, 1, 0),
        closed: &[
            Version::release(2, 1, 9),
            Version::release(2, 2, 5),
            Version::release(2, 3, 2),
        ],
    },
    Advisory {
        program: Program::Containerd,
        names: &["CVE-2026-53488"],
        what: "an image's labels have the host run a program",
        since: ANY,
        closed: &[
            Version::release(1, 7, 33),
            Version::release(2, 0, 10),
            Version::release(2, 1, 9),
            Version::release(2, 2, 5),
            Version::release(2, 3, 2),
        ],
    },
];

impl Advisory {
    fn concerns(&self, program: Program, version: Version) -> bool {
        let in_its_series = |closed: &Version| version.is_of_series(*closed) && version >= *closed;
        let is_closed = self.closed.iter().any(in_its_series)
            || self.closed.last().is_some_and(|last| version >= *last);
        program == self.program && version >= self.since && !is_closed
    }

    fn finding(&self, version: Version, path: &str) -> Finding {
        let Self {
            program,
            names,
            what,
            closed,
            ..
        } = self;
        let versions: Vec<_> = closed.iter().map(Version::to_string).collect();
        Finding {
            id: format!("{program}-{}", names.first().copied().unwrap_or_default()),
            verdict: Verdict::Warning,
            evidence: format!(
                "{program} {version} ({path}) may have {}: {what}",
                names.join(", ")
            ),
            remedy: format!(
                "install {program} {} or newer, or a package in which your distribution has \
                 closed it",
                versions.join(", ")
            ),
        }
    }
}

/// What is known of this version of a program.
pub(super) fn of(program: Program, version: Version, path: &str) -> Vec<Finding> {
    let concerned = ADVISORIES
        .iter()
        .filter(|advisory| advisory.concerns(program, version));
    concerned
        .map(|advisory| advisory.finding(version, path))
        .collect()
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verdict,
            evidence,
            remedy,
            ..
        } = self;
        write!(f, "{verdict}: {evidence}; {remedy}")
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(program: Program, version: Version) -> Vec<String> {
        let found = of(program, version, "/usr/sbin/it");
        found.into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn each_series_has_its_own_first_version_without_the_hole() {
        let release = Version::release;
        let runc = |version| ids(Program::Runc, version);
        let all = [
            "runc-CVE-2024-21626",
            "runc-CVE-2025-31133",
            "runc-CVE-2026-41579",
        ];
        assert_eq!(runc(release(1, 1, 0)), all);
        assert_eq!(runc(release(1, 1, 15)), all[1..], "1.1 has no such version");
        assert_eq!(runc(release(1, 2, 7)), all[1..]);
        assert_eq!(runc(release(1, 2, 8)), all[2..]);
        assert_eq!(runc(Version::candidate(1, 4, 0, 2)), all[1..]);
        assert_eq!(runc(Version::candidate(1, 4, 0, 3)), all[2..]);
        assert_eq!(runc(release(1, 3, 6)), Vec::<String>::new());
        assert_eq!(runc(release(1, 5, 0)), Vec::<String>::new());
        assert_eq!(ids(Program::Crun, release(1, 30, 0)), Vec::<String>::new());
        assert_eq!(
            ids(Program::Crun, release(1, 28, 0)),
            ["crun-CVE-2026-88264"]
        );
    }

    #[test]
    fn containerd_that_cannot_restore_has_no_hole_in_it() {
        let containerd = |version| ids(Program::Containerd, version);
        let (restores, labels) = ("containerd-CVE-2026-53492", "containerd-CVE-2026-53488");
        assert_eq!(containerd(Version::release(1, 7, 24)), [labels]);
        assert_eq!(containerd(Version::release(2, 2, 4)), [restores, labels]);
        assert_eq!(containerd(Version::release(2, 1, 9)), Vec::<String>::new());
        assert_eq!(containerd(Version::release(2, 4, 0)), Vec::<String>::new());
    }

    #[test]
    fn what_to_do_is_said() {
        let found = of(Program::Runc, Version::release(1, 1, 11), "/usr/sbin/runc");
        let text = found[0].to_string();
        assert!(text.starts_with("warning: runc 1.1.11 (/usr/sbin/runc) may have CVE-2024-21626"));
        assert!(text.contains("install runc 1.1.12 or newer, or a package in which"));
    }
}
