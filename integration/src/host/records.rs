//! The engine's records of operations that are under way.

use std::path::PathBuf;

use anyhow::Result;

use super::installed::StasisHost;
use crate::check::wait::wait_until_clear;

/// The directory in which each container with an operation under way has a directory of the engine.
const RECORDS: &str = "/run/stasis/containers";
/// The directory in which the engine marks containers that a checkpoint is stopping.
const STOPPING: &str = "/run/stasis/stopping";
/// The state root that containerd gives its runtime for the namespace of the tests.
pub const CONTAINERD_ROOT: &str = "/run/containerd/runc/default";

impl StasisHost {
    /// Returns the record of a container that a runtime keeps below a state root.
    pub fn record(&self, root: &str, id: &str) -> PathBuf {
        let root = root.replace('/', "%");
        self.path(format!("{RECORDS}/{root}/{id}"))
    }

    /// Returns the files of all records; none where nothing is under way and nothing has to be put
    /// right. A lock file counts while it is held: a runtime that is killed before it writes its
    /// intent leaves one, and the next operation on the container takes it over.
    pub fn records(&self) -> Result<String> {
        let is_held = "! -exec flock --nonblock {} true ';'";
        // The directory does not exist before the first operation, and find fails if a directory
        // that it has found is gone before it looks there.
        let script = format!(
            "[ ! -e {RECORDS} ] || \
             find {RECORDS} -type f '(' ! -name lock -o {is_held} ')' -print || true",
        );
        self.run_for_text(&["bash", "-c", &script])
    }

    /// Waits until no container is being stopped by a checkpoint.
    ///
    /// # Errors
    /// A container is, after 30 s, or the host cannot be looked at.
    pub fn nobody_is_stopped(&self) -> Result<()> {
        let script = format!("[ ! -e {STOPPING} ] || find {STOPPING} -type f");
        wait_until_clear(|| {
            let left = self.run_for_text(&["bash", "-c", &script])?;
            Ok((!left.is_empty()).then_some(left))
        })
    }

    /// Returns the pids of the keepers; empty if there are none. A keeper takes its name some time
    /// after it was started.
    pub fn keepers(&self) -> String {
        let found = self.run_for_text(&["pgrep", "-x", "stasis-keeper"]);
        found.unwrap_or_default()
    }

    /// Waits for a keeper; returns as [`StasisHost::keepers`] does.
    pub fn until_kept(&self) -> Result<String> {
        let mut keepers = String::new();
        wait_until_clear(|| {
            keepers = self.keepers();
            Ok(keepers.is_empty().then(|| "no keeper".to_owned()))
        })?;
        Ok(keepers)
    }

    /// Waits for a keeper, kills all, and waits until they are dead: the locks of a killed process
    /// last until the kernel has closed its files, and kill does not wait for that. Operations that
    /// go on start other keepers meanwhile.
    ///
    /// # Errors
    /// There is none after 30 s, or one does not die.
    pub fn kill_keepers(&self) -> Result<()> {
        let keepers = self.until_kept()?;
        let killed: Vec<_> = keepers.split_whitespace().collect();
        // A keeper may have ended by itself since.
        let script = "kill -KILL \"$@\" || true";
        self.run(&[&["bash", "-c", script, "kill"], &killed[..]].concat())?;
        wait_until_clear(|| {
            let alive = ["pgrep", "-x", "-r", "S,R,D", "stasis-keeper"];
            let alive = self.run_for_text(&alive).unwrap_or_default();
            let mut alive = alive.split_whitespace();
            Ok(alive.find(|pid| killed.contains(pid)).map(str::to_owned))
        })
    }

    /// Waits until nothing has to be put right, and no keeper lives.
    ///
    /// # Errors
    /// Lists the remains after 30 s.
    pub fn nothing_to_put_right(&self) -> Result<()> {
        wait_until_clear(|| {
            let left = [self.records()?, self.keepers()].concat();
            Ok((!left.is_empty()).then_some(left))
        })
    }
}
