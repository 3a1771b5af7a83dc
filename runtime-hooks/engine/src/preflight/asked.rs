//! CRIU's options beyond its defaults at a dump: from the caller's options, and from the
//! configuration files that CRIU and the low-level runtime read (criu(8), "CONFIGURATION FILES").
//!
//! A file that the low-level runtime names comes last and takes precedence, the others are read
//! before its request. Whichever says something is believed: a checkpoint that CRIU fails is better
//! than one that is refused and would have been made.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use stasis_config::Flavor;

use crate::low_level::criu_settings::{CriuSettings, DIRECTORY};
use crate::request::CriuOption;

/// `DEFAULT_GHOST_LIMIT` (criu/include/cr_options.h).
const GHOST_LIMIT: u64 = 1 << 20;
/// Below the home directory of our caller, and so of CRIU.
const OF_USER: &str = ".criu/default.conf";
/// Options of CRIU that have it dump connections: saved, or closed.
const CONNECTIONS: [&str; 2] = ["tcp-established", "tcp-close"];
/// Options that crun does not hand on (crun src/checkpoint.c).
const NOT_BY_CRUN: [CriuOption; 2] = [CriuOption::TcpSkipInFlight, CriuOption::LinkRemap];

/// The options of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    options: BTreeSet<CriuOption>,
    /// The largest file without a name that CRIU takes, in bytes.
    ghost_limit: u64,
    /// Whether CRIU gets paths at which to look for files that inotify watches.
    finds_watches: bool,
}

impl Asked {
    /// Collects the options of a caller and of the files of this machine. `annotated` is the file
    /// that the container's annotation names.
    #[must_use]
    pub fn of(flavor: Flavor, options: &BTreeSet<CriuOption>, annotated: Option<&Path>) -> Self {
        let handed_on = |option: &CriuOption| match flavor {
            Flavor::Runc => true,
            Flavor::Crun => !NOT_BY_CRUN.contains(option),
        };
        let mut asked = Self {
            options: options.iter().copied().filter(handed_on).collect(),
            ghost_limit: GHOST_LIMIT,
            finds_watches: false,
        };
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(OF_USER));
        let names: &[&str] = match flavor {
            Flavor::Runc => &["default.conf", "runc.conf"],
            Flavor::Crun => &["default.conf", "crun.conf", "runc.conf"],
        };
        let shared = names.iter().map(|name| Path::new(DIRECTORY).join(name));
        let all = shared.chain(home).chain(annotated.map(Path::to_owned));
        for path in all {
            asked.take_in(CriuSettings::read(&path).options());
        }
        asked
    }

    /// Takes in the options of a configuration file.
    fn take_in<'o>(&mut self, options: impl Iterator<Item = (&'o str, &'o str)>) {
        for (name, value) in options {
            let option = CriuOption::ALL.iter().find(|option| option.name() == name);
            self.options.extend(option);
            if CONNECTIONS.contains(&name) {
                self.options.insert(CriuOption::TcpEstablished);
            }
            self.finds_watches |= name == "irmap-scan-path";
            if name == "ghost-limit" {
                let limit = size(value).unwrap_or(u64::MAX);
                self.ghost_limit = self.ghost_limit.max(limit);
            }
        }
    }

    /// Whether CRIU gets this option.
    pub fn has(&self, option: CriuOption) -> bool {
        self.options.contains(&option)
    }

    /// Whether CRIU gets paths at which to look for watched files.
    pub(crate) fn finds_watches(&self) -> bool {
        self.finds_watches
    }

    /// Returns the largest file without a name that CRIU takes, in bytes.
    pub(crate) fn ghost_limit(&self) -> u64 {
        self.ghost_limit
    }
}

/// Parses a number with a unit, or without (criu/util.c, `parse_size`).
fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (end, 'K' | 'k') => (&text[..end], 10),
        (end, 'M' | 'm') => (&text[..end], 20),
        (end, 'G' | 'g') => (&text[..end], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::low_level::criu_settings::options;

    fn nothing() -> Asked {
        Asked {
            options: BTreeSet::new(),
            ghost_limit: GHOST_LIMIT,
            finds_watches: false,
        }
    }

    #[test]
    fn a_configuration_file_asks_like_an_option() {
        let mut asked = nothing();
        let read = |asked: &mut Asked, text: &str| asked.take_in(options(text));
        read(
            &mut asked,
            "# tcp-established\n\nlog-file dump.log # link-remap\nno-tcp-established\n",
        );
        assert_eq!(asked, nothing());
        read(
            &mut asked,
            "\t tcp-close\nghost-limit \"512M\"\nlink-remap # because\n",
        );
        assert!(asked.has(CriuOption::TcpEstablished) && asked.has(CriuOption::LinkRemap));
        assert!(!asked.has(CriuOption::TcpSkipInFlight));
        assert_eq!(asked.ghost_limit(), 512 << 20);
        read(&mut asked, "ghost-limit=2G");
        assert_eq!(asked.ghost_limit(), 2 << 30);
        read(&mut asked, "ghost-limit 4096");
        assert_eq!(asked.ghost_limit(), 2 << 30);
        read(&mut asked, "ghost-limit 5 EiB");
        assert_eq!(asked.ghost_limit(), u64::MAX);
    }

    #[test]
    fn crun_hands_on_what_it_has() {
        let all = CriuOption::ALL.iter().copied().collect();
        for (flavor, has_all) in [(Flavor::Runc, true), (Flavor::Crun, false)] {
            let asked = Asked::of(flavor, &all, None);
            assert!(asked.has(CriuOption::TcpEstablished));
            assert_eq!(asked.has(CriuOption::LinkRemap), has_all);
        }
    }

    #[test]
    fn the_file_of_an_annotation_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.conf");
        std::fs::write(&path, "tcp-skip-in-flight\n").unwrap();
        let of = |path| Asked::of(Flavor::Crun, &BTreeSet::new(), path);
        assert!(of(Some(&path)).has(CriuOption::TcpSkipInFlight));
        assert!(!of(Some(Path::new("/nowhere"))).has(CriuOption::TcpSkipInFlight));
    }
}
