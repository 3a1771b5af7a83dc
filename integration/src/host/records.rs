//! What the engine records of operations that are under way.

use std::path::PathBuf;

use anyhow::Result;

use super::installed::StasisHost;
use crate::check::wait::wait_until_clear;

/// Where the engine keeps one directory for each container that has an operation under way.
const RECORDS: &str = "/run/stasis/containers";
/// Where it shows which containers are being stopped by a checkpoint.
const STOPPING: &str = "/run/stasis/stopping";
/// The state root that containerd gives its runtime for the namespace of the tests.
pub const CONTAINERD_ROOT: &str = "/run/containerd/runc/default";

impl StasisHost {
    /// The record of a container that a runtime keeps below a state root.
    #[must_use]
    pub fn record(&self, root: &str, id: &str) -> PathBuf {
        let root = root.replace('/', "%");
        self.host.path(format!("{RECORDS}/{root}/{id}"))
    }

    /// The files of all records; none where nothing is under way and nothing has to be put right.
    /// A lock file counts while it is held: a runtime that is killed before it writes its intent
    /// leaves one, and the next operation on the container takes it over.
    ///
    /// # Errors
    /// The host cannot be looked at.
    pub fn records(&self) -> Result<String> {
        let is_held = "! -exec flock --nonblock {} true ';'";
        // There is no directory before the first operation, and find fails if one that it has found
        // is gone before it looks there.
        let script = format!(
            "[ ! -e {RECORDS} ] || \
             find {RECORDS} -type f '(' ! -name lock -o {is_held} ')' -print || true",
        );
        self.host.run_for_text(&["bash", "-c", &script])
    }

    /// Waits until no container is being stopped by a checkpoint.
    ///
    /// # Errors
    /// One is, after 30 s, or the host cannot be looked at.
    pub fn nobody_is_stopped(&self) -> Result<()> {
        let script = format!("[ ! -e {STOPPING} ] || find {STOPPING} -type f");
        wait_until_clear(|| {
            let left = self.host.run_for_text(&["bash", "-c", &script])?;
            Ok((!left.is_empty()).then_some(left))
        })
    }

    /// The pids of the keepers; empty if there are none. A keeper takes its name some time after it
    /// was started.
    #[must_use]
    pub fn keepers(&self) -> String {
        let found = self.host.run_for_text(&["pgrep", "-x", "stasis-keeper"]);
        found.unwrap_or_default()
    }

    /// Waits for a keeper, kills all, and waits until they are dead: what a killed process holds
    /// locked is held until the kernel has closed its files, and kill does not wait for that.
    /// Operations that go on start others meanwhile.
    ///
    /// # Errors
    /// There is none after 30 s, or one does not die.
    pub fn kill_keepers(&self) -> Result<()> {
        let mut keepers = String::new();
        wait_until_clear(|| {
            keepers = self.keepers();
            Ok(keepers.is_empty().then(|| "no keeper".to_owned()))
        })?;
        let killed: Vec<_> = keepers.split_whitespace().collect();
        // One may have ended by itself since.
        let script = "kill -KILL \"$@\" || true";
        self.host
            .run(&[&["bash", "-c", script, "kill"], &killed[..]].concat())?;
        wait_until_clear(|| {
            let alive = ["pgrep", "-x", "-r", "S,R,D", "stasis-keeper"];
            let alive = self.host.run_for_text(&alive).unwrap_or_default();
            let mut alive = alive.split_whitespace();
            Ok(alive.find(|pid| killed.contains(pid)).map(str::to_owned))
        })
    }

    /// Waits until nothing has to be put right, and nobody is putting anything right.
    ///
    /// # Errors
    /// What is left after 30 s.
    pub fn nothing_to_put_right(&self) -> Result<()> {
        wait_until_clear(|| {
            let left = [self.records()?, self.keepers()].concat();
            Ok((!left.is_empty()).then_some(left))
        })
    }
}
