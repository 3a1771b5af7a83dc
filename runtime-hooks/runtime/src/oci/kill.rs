//! `kill`, and the checkpoint that a container may request in its place.

use std::ffi::{OsStr, OsString};
use std::path::{self, Path};
use std::time::Duration;

use nix::libc::SIGTERM;
use stasis_config::Flavor;
use stasis_host::signal;
use stasis_lifecycle::request::{KillRequest, StopCommands};

use crate::oci::grammar::{Scan, WAIT};
use crate::oci::{Invocation, container_id};

/// Reads the arguments; `None` if the low-level runtime answers better.
pub(super) fn request(scan: &Scan<'_>) -> Option<KillRequest> {
    // crun's `kill --regex` names many containers.
    if scan.has("regex") || scan.has("r") {
        return None;
    }
    let (id, signal) = match scan.operands.as_slice() {
        [id] => (id, SIGTERM),
        [id, signal] => (id, signal::number_of(signal.to_str()?)?),
        _ => return None,
    };
    let id = container_id(id)?;
    Some(KillRequest { id, signal })
}

impl Invocation {
    /// Returns the command lines of the checkpoint and the kill that may follow a `kill`, in
    /// another directory. The caller's log is not written then: the caller has its answer already.
    /// The checkpoint waits so long for another operation.
    pub fn stop_commands(&self, root: &Path, flavor: Flavor, wait: Duration) -> StopCommands {
        let own = [
            ("--stasis-config", self.global.settings.as_deref()),
            ("--stasis-low-level", self.global.low_level.as_deref()),
        ];
        let own = own.into_iter().filter_map(|(name, path)| {
            let path = path?;
            // A bare name is looked up.
            let path = match path.components().count() {
                0 | 1 => path.to_owned(),
                _ => path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            };
            Some([OsString::from(name), path.into_os_string()])
        });
        let wait = format!("--{WAIT}={}", wait.as_secs());
        let own: Vec<_> = own.flatten().chain([wait.into()]).collect();
        let quietly = [
            "--root".as_ref(),
            root.as_os_str(),
            "--log".as_ref(),
            OsStr::new("/dev/null"),
        ];
        let all = self.pass_on(flavor);
        let (global, verb) = all.split_at(self.subcommand.unwrap_or_default());
        // Of two such options the last one counts.
        let before: Vec<_> = global
            .iter()
            .map(OsString::as_os_str)
            .chain(quietly)
            .collect();
        let with = |own: &[OsString], rest: &[OsString]| {
            let before = before.iter().map(|argument| (*argument).to_owned());
            own.iter()
                .cloned()
                .chain(before)
                .chain(rest.iter().cloned())
                .collect()
        };
        StopCommands {
            checkpoint: with(&own, &["checkpoint".into()]),
            kill: with(&[], verb),
        }
    }
}
