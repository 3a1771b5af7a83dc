//! The kinds of test hosts, and the tests that run on several of them.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::check::requirement::{Requirement, leave_out};

/// The Debian suite that a host is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// Debian 13: containerd 1.7, runc 1.1, Docker 26, CRIU 4.1.
    Trixie,
    /// Debian unstable: containerd 2.1, runc 1.3, Docker 28, CRIU 4.2.
    Sid,
}

impl Suite {
    /// The suite's name in Debian's archive.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Trixie => "trixie",
            Suite::Sid => "sid",
        }
    }
}

/// The cgroups that a host sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cgroups {
    /// The machine's version 1 hierarchies, with version 2 beside them.
    Hybrid,
    /// Version 2 alone, with the controllers that version 1 does not own.
    V2,
}

impl Cgroups {
    /// Whether this machine can run hosts with these.
    pub fn available(self) -> Result<bool> {
        if self == Cgroups::V2 {
            return Ok(true);
        }
        let own = fs::read_to_string("/proc/self/cgroup")
            .context("reading the cgroups of this process")?;
        Ok(own.lines().any(|line| !line.starts_with("0:")))
    }

    /// The older kind that this machine can run: version 1 beside version 2, else version 2 alone.
    pub fn oldest() -> Result<Cgroups> {
        let hybrid = Cgroups::Hybrid;
        Ok(if hybrid.available()? {
            hybrid
        } else {
            Cgroups::V2
        })
    }
}

/// The parts of a test host with stasis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostKind {
    /// Its name.
    pub name: &'static str,
    /// The Debian suite.
    pub suite: Suite,
    /// The cgroups that it sees.
    pub cgroups: Cgroups,
    /// The low-level runtime below stasis.
    pub low_level: &'static str,
}

impl HostKind {
    /// Runs a test on this kind of host; leaves it out where the machine cannot run such a host.
    pub fn run(self, test: &str, scenario: impl FnOnce(Self) -> Result<()>) -> Result<()> {
        if self.cgroups.available()? {
            scenario(self)
        } else {
            leave_out(test, Requirement::HybridCgroups)
        }
    }
}

/// The kinds by the names that [`on_hosts`](crate::on_hosts) takes. `trixie` and `sid` have both
/// versions of cgroups where the machine has them, and version 2 alone elsewhere.
macro_rules! kinds {
    ($($name:ident: $suite:ident, $cgroups:expr, $low_level:literal;)+) => {
        impl HostKind {
            $(
                /// The kind of this name.
                pub fn $name() -> Result<Self> {
                    let name = stringify!($name);
                    let (suite, cgroups, low_level) = (Suite::$suite, $cgroups, $low_level);
                    Ok(Self { name, suite, cgroups, low_level })
                }
            )+

            /// The kind of a name.
            pub fn named(name: &str) -> Result<Self> {
                match name {
                    $(stringify!($name) => Self::$name(),)+
                    _ => bail!("there is no kind of test host named {name:?}"),
                }
            }
        }
    };
}

kinds! {
    trixie: Trixie, Cgroups::oldest()?, "runc";
    trixie_hybrid: Trixie, Cgroups::Hybrid, "runc";
    trixie_v2: Trixie, Cgroups::V2, "runc";
    sid: Sid, Cgroups::oldest()?, "runc";
    sid_hybrid: Sid, Cgroups::Hybrid, "runc";
    sid_v2: Sid, Cgroups::V2, "runc";
    crun_on_trixie: Trixie, Cgroups::oldest()?, "crun";
    crun_on_trixie_v2: Trixie, Cgroups::V2, "crun";
    crun_on_sid_hybrid: Sid, Cgroups::Hybrid, "crun";
    crun_on_sid_v2: Sid, Cgroups::V2, "crun";
}

/// Makes one test for each kind of host: `on_hosts!(scenario: trixie, sid_v2)`. The scenario takes
/// the [`HostKind`]. With checks, `on_hosts!(in_host [check, another]: trixie, sid_v2)`, it takes
/// them as well.
#[macro_export]
macro_rules! on_hosts {
    ($in_host:path [$($check:path),+ $(,)?]: $($kind:ident),+ $(,)?) => {
        $crate::on_hosts!(checks: $($kind),+);

        fn checks(kind: $crate::host::HostKind) -> anyhow::Result<()> {
            $in_host(kind, &[$($check),+])
        }
    };
    ($scenario:path: $($kind:ident),+ $(,)?) => {
        $(
            #[test]
            fn $kind() -> anyhow::Result<()> {
                let test = concat!(module_path!(), "::", stringify!($kind));
                $crate::host::HostKind::$kind()?.run(test, $scenario)
            }
        )+
    };
}
