//! A container that is saved at its stops: its images, and its lines in the log.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::campaign::lives::{Lives, Saved};
use crate::campaign::subject::Subject;
use crate::host::installed::{OPERATIONS_LOG, PROGRAM};

impl Subject<'_> {
    fn key(&self) -> PathBuf {
        self.stasis.path(format!("/images/{}", self.key_name()))
    }

    fn key_name(&self) -> String {
        format!("{}-lives", self.id())
    }

    /// Has it saved at its stops from its next start on; it then begins with the newest image.
    pub fn saved_at_stops(mut self) -> Result<Self> {
        let key = self.key_name();
        self.bundle.annotate("io.stasis.checkpoint", "on-stop")?;
        self.bundle.annotate("io.stasis.checkpoint.key", &key)?;
        self.bundle.begin_with(&format!("latest:{key}"))?;
        self.lives = Some(Lives::default());
        Ok(self)
    }

    pub(super) fn lives(&mut self) -> Result<&mut Lives> {
        self.lives.as_mut().context("it is not saved at its stops")
    }

    /// Checks that no image is missing that has to exist. Of new images, the whole one becomes the
    /// newest; returns its name.
    pub(super) fn images_are_kept(&mut self) -> Result<Option<String>> {
        let found = fs::read_dir(self.key()).into_iter().flatten().flatten();
        let names = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let found: BTreeSet<String> = names.filter(|name| !name.starts_with('.')).collect();
        let (reading, key) = (self.last.clone(), self.key_name());
        let stasis = self.stasis;
        let lives = self.lives()?;
        let mut new = None;
        for name in found
            .iter()
            .filter(|name| !lives.images.contains_key(*name))
        {
            let image = format!("/images/{key}/{name}");
            let verified = stasis.command(PROGRAM).args(["verify", &image]).output()?;
            if !verified.status.success() {
                continue;
            }
            ensure!(
                Some(name) > lives.newest(),
                "{name} after {:?}",
                lives.newest()
            );
            ensure!(new.is_none(), "two new images: {name}, {new:?}");
            new = Some(name.clone());
        }
        if let Some(name) = &new {
            let life = lives.life;
            let saved = Saved { reading, life };
            lives.images.insert(name.clone(), saved);
        }
        if let Some(lost) = lives.kept().find(|name| !found.contains(*name)) {
            bail!(
                "the image {lost} is gone; there are {found:?} of {:?}",
                lives.images
            );
        }
        lives.images.retain(|name, _| found.contains(name));
        Ok(new)
    }

    /// Sets the clock back: the newest image is one of the far future from now on. Returns whether
    /// there is one.
    pub(super) fn clock_goes_back(&mut self) -> Result<bool> {
        let key = self.key();
        let lives = self.lives()?;
        let life = lives.life;
        let Some(newest) = lives
            .images
            .last_entry()
            .filter(|last| last.get().life == life)
        else {
            return Ok(false);
        };
        let (before, saved) = newest.remove_entry();
        let year = before[..4].parse::<u32>()?.max(2098) + 1;
        let later = format!("{year}{}", &before[4..]);
        fs::rename(key.join(&before), key.join(&later))?;
        lives.images.insert(later, saved);
        Ok(true)
    }

    pub(super) fn forget_lives(&self) -> Result<()> {
        if self.lives.is_some() && self.key().exists() {
            fs::remove_dir_all(self.key())?;
        }
        Ok(())
    }

    /// Returns the length of the log of operations.
    pub(super) fn log_length(&self) -> u64 {
        let log = fs::metadata(self.stasis.path(OPERATIONS_LOG));
        log.map_or(0, |log| log.len())
    }

    /// Returns the notes and errors of its operations since the log had this length.
    pub(super) fn noted_since(&self, since: u64) -> Result<String> {
        let lines = self.lines_since(since)?;
        let told = lines.iter().map(|line| [&line["notes"], &line["error"]]);
        let told = told.flatten().filter(|told| !told.is_null());
        Ok(told.map(|told| format!(" {told}")).collect())
    }

    /// Returns its last log line of an operation since the log had this length.
    pub(super) fn logged(&self, operation: &str, since: u64) -> Result<Option<Value>> {
        let mut lines = self.lines_since(since)?.into_iter();
        Ok(lines.rfind(|line| line["operation"] == operation))
    }

    fn lines_since(&self, since: u64) -> Result<Vec<Value>> {
        let log = fs::read(self.stasis.path(OPERATIONS_LOG)).unwrap_or_default();
        let log =
            String::from_utf8_lossy(&log[usize::try_from(since)?.min(log.len())..]).into_owned();
        let lines = log.lines().map(|line| Ok(serde_json::from_str(line)?));
        let lines: Result<Vec<Value>> = lines.collect();
        let mut lines = lines?;
        lines.retain(|line| line["container"] == self.id());
        Ok(lines)
    }
}
