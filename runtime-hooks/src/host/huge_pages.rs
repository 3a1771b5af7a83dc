//! Transparent huge pages, switched on while host memory is filled or GPU contents go back.
//!
//! During a GPU checkpoint the driver writes the GPU's contents into fresh anonymous memory of
//! the process. With 2 MiB pages that takes 2.3 instead of 3.1 s for 8 GiB, and the restore is
//! faster, too (H200, driver 580.159). The switch is one for the whole machine, so operations
//! that overlap share it: the first records the original value, the last puts it back. If an
//! operation is killed, its keeper or the next one uses its record.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use stasis_config::Settings;

use crate::host::file_lock::{MOMENT, Sharing, Tried, lock_soon, lock_within, try_lock, unlock};

const SWITCH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The name of the record below the state directory.
const RECORD: &str = "huge-pages";

/// Huge pages are on for all memory as long as this lives.
#[derive(Debug)]
pub struct HugePages {
    switch: PathBuf,
    record: PathBuf,
    gate: File,
    users: File,
}

impl HugePages {
    /// Switches huge pages on, if the settings want it, until the returned value is dropped. Only
    /// speed depends on them: a kernel without the switch is no reason to fail.
    #[must_use]
    pub fn if_wanted(settings: &Settings) -> Option<Self> {
        let state_dir = &settings.paths.state_dir;
        let wanted = settings.gpu_checkpoint.huge_pages;
        wanted.then(|| Self::switch_on(state_dir).ok()).flatten()
    }

    /// Switches huge pages on until the returned value is dropped. `state_dir` must exist.
    ///
    /// # Errors
    /// An I/O error; the setting is then unchanged.
    fn switch_on(state_dir: &Path) -> io::Result<Self> {
        Self::switch_on_at(Path::new(SWITCH), state_dir)
    }

    /// Puts the recorded value back that a killed operation has left, if nobody uses the switch.
    ///
    /// # Errors
    /// An I/O error; the record stays.
    pub(crate) fn put_back(state_dir: &Path) -> io::Result<()> {
        Self::put_back_at(Path::new(SWITCH), state_dir)
    }

    fn put_back_at(switch: &Path, state_dir: &Path) -> io::Result<()> {
        if state_dir.join(RECORD).exists() {
            // Dropped, it is as if an operation had ended that used it.
            drop(Self::at(switch, state_dir)?);
        }
        Ok(())
    }

    fn at(switch: &Path, state_dir: &Path) -> io::Result<Self> {
        Ok(Self {
            switch: switch.to_owned(),
            record: state_dir.join(RECORD),
            gate: lock_file(&state_dir.join("huge-pages.gate"))?,
            users: lock_file(&state_dir.join("huge-pages.users"))?,
        })
    }

    fn switch_on_at(switch: &Path, state_dir: &Path) -> io::Result<Self> {
        let held = Self::at(switch, state_dir)?;
        lock_soon(&held.gate)?;
        let switched = held.enter();
        unlock(&held.gate)?;
        match switched {
            Ok(()) => Ok(held),
            Err(error) => Err(error),
        }
    }

    /// Runs behind the gate.
    fn enter(&self) -> io::Result<()> {
        if !self.record.exists() {
            let text = fs::read_to_string(&self.switch)?;
            fs::write(&self.record, selected(&text)?)?;
        }
        // Who leaves has it for a moment, without the gate.
        lock_within(MOMENT, &self.users, Sharing::Shared)?;
        fs::write(&self.switch, "always")
    }

    /// Runs behind the gate: if nobody else uses the switch, puts the recorded value back.
    fn leave(&self) -> io::Result<()> {
        match try_lock(&self.users, Sharing::Exclusive)? {
            Tried::Locked => {
                fs::write(&self.switch, fs::read_to_string(&self.record)?)?;
                fs::remove_file(&self.record)
            }
            Tried::Held => Ok(()),
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // If this fails, the record stays for the next operation.
        if lock_soon(&self.gate).is_ok() {
            let _ = self.leave();
        }
    }
}

fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// The kernel lists all values and marks the one in force: `always [madvise] never`.
fn selected(text: &str) -> io::Result<&str> {
    text.split_ascii_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{SWITCH}: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch_in(directory: &Path) -> PathBuf {
        let switch = directory.join("enabled");
        fs::write(&switch, "always [madvise] never\n").unwrap();
        switch
    }

    fn value(switch: &Path) -> String {
        fs::read_to_string(switch).unwrap()
    }

    #[test]
    fn the_last_of_overlapping_users_puts_the_value_back() {
        let directory = tempfile::tempdir().unwrap();
        let switch = switch_in(directory.path());
        let first = HugePages::switch_on_at(&switch, directory.path()).unwrap();
        assert_eq!(value(&switch), "always");
        let second = HugePages::switch_on_at(&switch, directory.path()).unwrap();
        drop(first);
        assert_eq!(value(&switch), "always");
        drop(second);
        assert_eq!(value(&switch), "madvise");
        assert!(!directory.path().join("huge-pages").exists());
    }

    #[test]
    fn a_record_of_a_killed_operation_is_honoured() {
        let directory = tempfile::tempdir().unwrap();
        let switch = switch_in(directory.path());
        fs::write(&switch, "[always] madvise never\n").unwrap();
        fs::write(directory.path().join("huge-pages"), "never").unwrap();
        drop(HugePages::switch_on_at(&switch, directory.path()).unwrap());
        assert_eq!(value(&switch), "never");
    }

    #[test]
    fn what_a_killed_operation_has_left_is_put_back_unless_another_needs_it() {
        let directory = tempfile::tempdir().unwrap();
        let switch = switch_in(directory.path());
        HugePages::put_back_at(&switch, directory.path()).unwrap();
        assert_eq!(value(&switch), "always [madvise] never\n", "no record");
        let other = HugePages::switch_on_at(&switch, directory.path()).unwrap();
        HugePages::put_back_at(&switch, directory.path()).unwrap();
        assert_eq!(value(&switch), "always");
        // Killed: its lock goes, its record stays.
        unlock(&other.users).unwrap();
        HugePages::put_back_at(&switch, directory.path()).unwrap();
        assert_eq!(value(&switch), "madvise");
        fs::write(directory.path().join(RECORD), "madvise").unwrap();
    }

    #[test]
    fn a_kernel_without_the_switch_is_an_error_and_leaves_no_record() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        assert!(HugePages::switch_on_at(&missing, directory.path()).is_err());
        assert!(!directory.path().join("huge-pages").exists());
    }
}
