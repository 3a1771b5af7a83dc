//! What becomes of bulk memory that is to be removed.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::ImageId;

use super::MemoryCommandError;
use super::prune::{LeftOver, What};
use crate::bulk_memory::in_use::Removed;

/// The bulk memory of a checkpoint that was removed by its name.
#[derive(Debug, Serialize)]
pub(super) struct Named {
    pub(super) image_id: ImageId,
    pub(super) result: Done,
}

/// Bulk memory that is not to be kept, and what has become of it.
#[derive(Debug, Serialize)]
pub(super) struct Pruned {
    /// `None` for the rest of a copy to disk.
    image_id: Option<ImageId>,
    /// The rest of a copy.
    copy: Option<PathBuf>,
    container: Option<String>,
    image_path: Option<PathBuf>,
    /// What it takes, and no other checkpoint uses; `None` where that is not known.
    bytes: Option<u64>,
    why: &'static str,
    result: Done,
    /// All of that for people.
    #[serde(skip)]
    text: String,
}

/// What has become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Done {
    WouldRemove,
    Removed,
    /// Somebody uses it, so it stays.
    InUse,
}

/// Whether it is only shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prune {
    Show,
    Remove,
}

impl Pruned {
    /// Of one that is removed, if it is to be.
    ///
    /// # Errors
    /// [`MemoryCommandError`].
    pub(super) fn of(
        settings: &Settings,
        left_over: &LeftOver,
        prune: Prune,
    ) -> Result<Self, MemoryCommandError> {
        let result = match prune {
            Prune::Show => Done::WouldRemove,
            Prune::Remove if left_over.remove(settings)? == Removed::InUse => Done::InUse,
            Prune::Remove => Done::Removed,
        };
        let (copy, kept) = match &left_over.what {
            What::Copy(path) => (Some(path.clone()), None),
            What::Store(kept) => (None, Some(kept)),
        };
        Ok(Self {
            image_id: kept.map(|kept| kept.image_id),
            copy,
            container: left_over.container().map(str::to_owned),
            image_path: kept.and_then(|kept| kept.image_path.clone()),
            bytes: kept.map(|kept| kept.own_bytes),
            why: left_over.why,
            result,
            text: left_over.to_string(),
        })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is removed", self.image_id)
    }
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.result {
            Done::WouldRemove => Ok(()),
            Done::Removed => f.write_str("; removed"),
            Done::InUse => f.write_str("; it stays for now, since it is in use"),
        }
    }
}
