//! The bulk memory of an image that is to be restored: whether it is all there, asked before anything is started.

use std::path::{Path, PathBuf};

use stasis_memory_store::{Index, Reader, RestoreOrder, StoreError, Tier};

use crate::criu_plugins::Environment;
use crate::engine::Engine;
use crate::error::Failure;
use crate::huge_pages::HugePages;
use crate::manifest::Manifest;
use crate::memory_dump::{MemoryFailure, boot_id};
use crate::memory_order::{self, OrderFiles};
use crate::memory_plugin::Plugins;
use crate::memory_stores::Stores;
use crate::timeline::Timeline;

/// Why bulk memory cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum MemoryDenial {
    /// CRIU alone would bring back processes without it.
    #[error(
        "the image has bulk memory in files of its own, which CRIU restores only with the plugin of stasis, and it \
         cannot be used: {0}; put that right and restore again"
    )]
    NoPlugin(String),
    /// Index or packs are not what they should be.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The index is missing.
    #[error(
        "{image} lacks its index of bulk memory (stasis-memory.index), so not all of the image was copied, or it was \
         changed; restore from a complete copy"
    )]
    NoIndex {
        /// The image directory.
        image: PathBuf,
    },
    /// The index is that of another checkpoint.
    #[error(
        "the bulk memory in {image} is that of another checkpoint ({found}, and the manifest says {expected}); restore \
         from an unchanged copy"
    )]
    OtherImage {
        /// The image directory.
        image: PathBuf,
        /// Whose index is there.
        found: String,
        /// Whose should be there.
        expected: String,
    },
    /// It is in a tier that has no such directory here.
    #[error(
        "the bulk memory of the image is not in {looked}{why}; it is in no other place, so restore where it is, or from another image"
    )]
    Gone {
        /// Where it was looked for.
        looked: String,
        /// What is known of the reason.
        why: &'static str,
    },
}

/// Bulk memory that is there.
#[derive(Debug)]
pub(crate) struct MemoryRestore {
    order: RestoreOrder,
    files: OrderFiles,
    /// How many areas it fills.
    areas: usize,
    /// What it fills.
    bytes: u64,
}

/// CRIU said that all is well, and it is not.
#[derive(Debug, thiserror::Error)]
#[error(
    "the processes were restored without their bulk memory, since CRIU has not used the plugin of stasis: look for a `libdir` in \
     CRIU's own settings (/etc/criu)"
)]
pub struct WithoutMemory;

impl MemoryRestore {
    /// Looks for the memory of an image. `None`: CRIU has all of it. `directory` is the operation's.
    ///
    /// # Errors
    /// [`MemoryDenial`].
    pub(crate) fn find(
        engine: &Engine,
        image: &Path,
        manifest: &Manifest,
        plugins: &Plugins,
        directory: &Path,
    ) -> Result<Option<Self>, MemoryDenial> {
        let Some(index) = Index::read(image)? else {
            return match manifest.memory {
                None => Ok(None),
                Some(_) => Err(MemoryDenial::NoIndex {
                    image: image.to_owned(),
                }),
            };
        };
        // A checkpoint that was cut off has left the index of nothing, with its manifest or with none.
        if manifest.memory.is_some() || !index.is_empty() {
            check_name(image, &index, manifest)?;
        }
        if index.is_empty() {
            return Ok(None);
        }
        if let Err(why) = &plugins.memory {
            return Err(MemoryDenial::NoPlugin(why.to_string()));
        }
        let stores = Stores::of(&engine.settings);
        let packs = find_packs(&stores, image, &index, manifest)?;
        let files = OrderFiles::of(directory);
        let chunks = index.areas().flat_map(|area| &area.chunks);
        Ok(Some(Self {
            areas: index.areas().count(),
            bytes: chunks.map(|chunk| chunk.pages.bytes() as u64).sum(),
            order: RestoreOrder {
                image_id: index.image_id,
                directory: packs,
                threads: memory_order::threads(engine, index.tier),
                progress: Some(files.progress.clone()),
                report: Some(files.report.clone()),
            },
            files,
        }))
    }

    /// What it fills, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Tells the plugin.
    ///
    /// # Errors
    /// [`Failure::Operation`].
    pub(crate) fn order(&self) -> Result<(), Failure> {
        Ok(self.files.write(&self.order)?)
    }

    /// Where the plugin tells how far it has come.
    pub(crate) fn progress(&self) -> &Path {
        &self.files.progress
    }

    /// Huge pages for what is filled.
    pub(crate) fn huge_pages(&self, engine: &Engine) -> Option<HugePages> {
        let settings = &engine.settings;
        let wanted = settings.gpu_checkpoint.huge_pages && self.bytes > 0;
        // Only speed depends on them.
        wanted
            .then(|| HugePages::switch_on(&settings.paths.state_dir).ok())
            .flatten()
    }

    /// After a restore that CRIU calls a success: what the plugin did.
    ///
    /// # Errors
    /// It did nothing.
    pub(crate) fn succeeded(&self, timeline: &mut Timeline<'_>) -> Result<(), WithoutMemory> {
        let report = self.files.report().unwrap_or_default();
        let is_whole = report.areas == self.areas && report.error.is_none();
        memory_order::tell(timeline, "criu restore", "refill", report);
        if is_whole { Ok(()) } else { Err(WithoutMemory) }
    }

    /// After a restore that failed: what the plugin said, if it was the plugin that failed.
    pub(crate) fn failed(&self) -> MemoryFailure {
        let report = self.files.report();
        MemoryFailure {
            moved: report.as_ref().map(|report| report.bytes),
            error: report.and_then(|report| report.error),
            not_returned: None,
        }
    }
}

/// What CRIU is told at a restore.
pub(crate) fn environment<'a>(
    plugins: &'a Plugins,
    memory: Option<&'a MemoryRestore>,
) -> Environment<'a> {
    Environment {
        plugins: &plugins.directory,
        memory_order: memory.map(|memory| memory.files.order.as_path()),
    }
}

/// An image without a manifest was made without us: by a plain runc that was told of the plugin.
fn check_name(image: &Path, index: &Index, manifest: &Manifest) -> Result<(), MemoryDenial> {
    let expected = match &manifest.memory {
        Some(stored) if stored.image_id == index.image_id => return Ok(()),
        None if manifest.is_implied() => return Ok(()),
        Some(stored) => stored.image_id.to_string(),
        None => "that there is none".to_owned(),
    };
    Err(MemoryDenial::OtherImage {
        image: image.to_owned(),
        found: index.image_id.to_string(),
        expected,
    })
}

/// The directory of the packs, all of which are there; `None` if it is the image's. Where it is follows from our settings alone.
fn find_packs(
    stores: &Stores,
    image: &Path,
    index: &Index,
    manifest: &Manifest,
) -> Result<Option<PathBuf>, MemoryDenial> {
    // Opening looks at each of them.
    let are_in = |place: Option<&Path>| Reader::open(image, index, place).map(drop);
    let at = |parent: &Path| parent.join(index.image_id.to_string());
    let (places, why) = match index.tier {
        Tier::Portable => {
            are_in(None)?;
            return Ok(None);
        }
        Tier::Disk => (
            vec![at(&stores.disk)],
            ": the image was copied without it, or it was deleted",
        ),
        // From memory it is read faster.
        Tier::Ram => (
            vec![at(&stores.ram), at(&stores.disk)],
            why_not_durable(manifest),
        ),
    };
    let mut not_whole = None;
    for place in places.iter().filter(|place| place.is_dir()) {
        match are_in(Some(place)) {
            Ok(()) => return Ok(Some(place.clone())),
            Err(error) => not_whole = Some(error),
        }
    }
    if let Some(error) = not_whole {
        return Err(error.into());
    }
    let looked: Vec<_> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    Err(MemoryDenial::Gone {
        looked: looked.join(" or "),
        why,
    })
}

fn why_not_durable(manifest: &Manifest) -> &'static str {
    let boot = manifest
        .memory
        .as_ref()
        .and_then(|stored| stored.boot_id.as_ref());
    if boot.is_some() && boot == boot_id().as_ref() {
        ": it was in this machine's memory, and it was deleted from there and not, or not yet, on disk"
    } else {
        ": it was in a machine's memory alone when that was restarted, since its copy to disk was not complete, or it is \
         on another machine"
    }
}

#[cfg(test)]
mod tests;
