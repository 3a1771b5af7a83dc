//! `stasis memory flush`: makes the copies to disk that are pending, now.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::ImageId;

use crate::bulk_memory::pending::Pending;
use crate::bulk_memory::write_behind::{self, Outcome, copy_all};
use crate::cli::answer::name;

/// A copy that was pending.
#[derive(Debug, Serialize)]
pub struct Flushed {
    /// The checkpoint.
    pub image_id: ImageId,
    /// Its container.
    pub container: String,
    /// Whether it is on disk now.
    pub durable: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Makes all copies that are pending, after the one that is being made. One that fails stays
/// pending, and is tried again.
#[must_use]
pub fn flush(settings: &Settings) -> Vec<Flushed> {
    let tried = copy_all(settings, &mut HashSet::new());
    let flushed = tried.into_iter().filter_map(Flushed::of).collect();
    // It is tried again by the next operation if this cannot be started.
    let _ = write_behind::start_if_pending(settings);
    flushed
}

impl Flushed {
    /// `None`: it is not needed any more.
    fn of((pending, outcome): (Pending, Outcome)) -> Option<Self> {
        let error = match outcome {
            Outcome::Copied(_) => None,
            Outcome::Failed(error) => Some(error.to_string()),
            Outcome::Gone => return None,
        };
        Some(Self {
            image_id: pending.image_id,
            container: pending.origin.container,
            durable: error.is_none(),
            error,
        })
    }
}

impl fmt::Display for Flushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of container {}: ",
            self.image_id,
            name(&self.container)
        )?;
        match &self.error {
            None => f.write_str("on disk"),
            Some(error) => write!(f, "not on disk, which is tried again: {}", name(error)),
        }
    }
}
