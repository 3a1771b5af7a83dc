//! `stasis memory verify`: reads bulk memory as the disk has it, and compares it with its
//! checksums.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{ImageId, Index};

use super::{MemoryCommandError, list, mib};
use crate::bulk_memory::in_use;
use crate::bulk_memory::kept::Kept;
use crate::bulk_memory::retention::CUT_OFF;
use crate::bulk_memory::scrub::Scrub;
use crate::cli::answer::name;
use crate::error::chain;

/// More damage of one store is counted and not named.
const MOST_NAMED: usize = 20;
/// The lowest priority, also for the disk (ioprio_get(2): it follows the nice value).
const NICE: i32 = 19;

/// One store that was read.
#[derive(Debug, Serialize)]
pub struct Verified {
    /// The checkpoint.
    pub image_id: ImageId,
    /// Its container, if known.
    pub container: Option<String>,
    /// Where its image was written.
    pub image_path: Option<PathBuf>,
    /// The store.
    pub directory: PathBuf,
    /// What was read of it; what several stores have is read once.
    pub bytes: u64,
    /// All that its image needs of it, without pages that are zero.
    pub needed_bytes: u64,
    /// How much of it is damaged.
    pub damaged: usize,
    /// What is damaged, as far as it is named.
    pub damage: Vec<String>,
}

/// Reads the stores whose names begin with these texts, or all if there are none.
///
/// # Errors
/// [`MemoryCommandError`]; damage is no error.
pub fn verify(settings: &Settings, ids: &[String]) -> Result<Vec<Verified>, MemoryCommandError> {
    let all = list(settings)?;
    let is_named = |kept: &Kept, id: &String| kept.image_id.to_string().starts_with(id.as_str());
    if let Some(unknown) = ids
        .iter()
        .find(|id| !all.iter().any(|kept| is_named(kept, id)))
    {
        return Err(MemoryCommandError::None(unknown.clone()));
    }
    // Without it the work is done all the same, in the way of others.
    let _ = rustix::process::nice(NICE);
    let mut scrub = Scrub::default();
    let mut verified = Vec::new();
    for kept in &all {
        let is_meant = ids.is_empty() || ids.iter().any(|id| is_named(kept, id));
        // What is being written is not whole yet.
        let is_written = !kept.complete && kept.idle < CUT_OFF;
        if !is_meant || kept.lost || is_written {
            continue;
        }
        for directory in &kept.directories {
            verified.extend(read_store(&mut scrub, kept, directory)?);
        }
    }
    Ok(verified)
}

/// `None`: it was removed meanwhile.
fn read_store(
    scrub: &mut Scrub,
    kept: &Kept,
    directory: &Path,
) -> Result<Option<Verified>, MemoryCommandError> {
    let in_use = in_use::hold(directory).map_err(MemoryCommandError::io(directory))?;
    if in_use.is_none() {
        return Ok(None);
    }
    let mut verified = Verified {
        image_id: kept.image_id,
        container: kept.container.clone(),
        image_path: kept.image_path.clone(),
        directory: directory.to_owned(),
        bytes: 0,
        needed_bytes: 0,
        damaged: 0,
        damage: Vec::new(),
    };
    match Index::read_store(directory) {
        Ok(Some(index)) => {
            let amount = scrub.read(&index, directory, |damage| verified.found(damage));
            (verified.bytes, verified.needed_bytes) = (amount.read, amount.needed);
        }
        Ok(None) => verified.found("it has no index".to_owned()),
        Err(error) => verified.found(chain(&error)),
    }
    Ok(Some(verified))
}

impl Verified {
    fn found(&mut self, damage: String) {
        self.damaged += 1;
        if self.damage.len() < MOST_NAMED {
            self.damage.push(damage);
        }
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", name(&self.directory.display()))?;
        if let Some(container) = &self.container {
            write!(f, ", container {}", name(container))?;
        }
        if let Some(image) = &self.image_path {
            write!(f, ", image {}", name(&image.display()))?;
        }
        if self.damaged == 0 {
            write!(f, ": whole, {} read", mib(self.bytes))?;
            return match self.needed_bytes - self.bytes {
                0 => Ok(()),
                before => write!(f, ", {} with another store before", mib(before)),
            };
        }
        write!(f, ": DAMAGED in {} places", self.damaged)?;
        for damage in &self.damage {
            write!(f, "\n  {}", name(damage))?;
        }
        Ok(())
    }
}
