//! The bulk memory of a restore: checks that all of it is there before anything is started.

use std::path::{Path, PathBuf};

use stasis_memory_store::{CHUNK, Index, Reader, RestoreRequest, Tier};

use crate::bulk_memory::in_use::{self, InUse};
use crate::bulk_memory::origin::{Origin, boot_id};
use crate::bulk_memory::plugin::Plugins;
use crate::bulk_memory::ram_tier;
use crate::bulk_memory::request::{self, RequestFiles};
use crate::bulk_memory::stores::Stores;
use crate::context::Context;
use crate::error::Failure;
use crate::error::bulk_memory::{BulkMemoryError, WithoutMemory};
use crate::error::low_level::MemoryFailure;
use crate::host::huge_pages::HugePages;
use crate::image::manifest::Manifest;
use crate::low_level::criu_plugins::Environment;
use crate::operation::timeline::Timeline;

/// Bulk memory that is complete.
#[derive(Debug)]
pub(crate) struct MemoryRestore {
    request: RestoreRequest,
    files: RequestFiles,
    /// The number of areas to fill.
    areas: usize,
    /// The bytes to fill in.
    bytes: u64,
    /// The memory that they take if all of it is huge pages.
    with_huge_pages: u64,
    /// Nobody removes it before the restore is over.
    _in_use: Option<InUse>,
}

const HUGE_PAGE: u64 = 2 << 20;
/// Huge pages may take this part more than what is filled in: where pages of a range were missing,
/// or zeros, they come back with it. A sparse heap could take 512 times what it had, and more than
/// the container may have.
const MOST_GROWTH: u64 = 4;

impl MemoryRestore {
    /// Finds the bulk memory of an image. `None` if CRIU's images hold all memory. `directory` is
    /// the operation's.
    ///
    /// # Errors
    /// [`BulkMemoryError`].
    pub(crate) fn find(
        context: &Context,
        image: &Path,
        manifest: &Manifest,
        plugins: &Plugins,
        directory: &Path,
    ) -> Result<Option<Self>, BulkMemoryError> {
        let Some(index) = Index::read(image)? else {
            return match manifest.memory {
                None => Ok(None),
                Some(_) => Err(BulkMemoryError::NoIndex {
                    image: image.to_owned(),
                }),
            };
        };
        // An interrupted checkpoint leaves an empty index, with or without a manifest.
        if manifest.memory.is_some() || !index.is_empty() {
            check_name(image, &index, manifest)?;
        }
        if index.is_empty() {
            return Ok(None);
        }
        if let Err(why) = &plugins.memory {
            return Err(BulkMemoryError::NoPlugin(why.to_string()));
        }
        let stores = Stores::of(&context.settings);
        let (packs, in_use) = match find_packs(&stores, image, &index, manifest)? {
            Some((packs, in_use)) => (Some(packs), Some(in_use)),
            None => (None, None),
        };
        if let Some(packs) = &packs {
            // Only `stasis memory prune` could miss it.
            let _ = Origin::was_restored_from(packs, image);
        }
        let files = RequestFiles::of(directory);
        let chunks = index.areas().flat_map(|area| &area.chunks);
        let restore = Self {
            areas: index.areas().count(),
            bytes: chunks.map(|chunk| chunk.pages.bytes() as u64).sum(),
            with_huge_pages: with_huge_pages(&index),
            request: RestoreRequest {
                image_id: index.image_id,
                directory: packs,
                threads: request::threads(context, index.tier),
                progress: Some(files.progress.clone()),
                report: Some(files.report.clone()),
            },
            files,
            _in_use: in_use,
        };
        // Its own memory is in use.
        ram_tier::evict_for_host(&stores, restore.bytes());
        Ok(Some(restore))
    }

    /// The host memory that it takes, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_dense() {
            self.with_huge_pages
        } else {
            self.bytes
        }
    }

    fn is_dense(&self) -> bool {
        self.with_huge_pages <= self.bytes + self.bytes / MOST_GROWTH
    }

    /// Writes the request to the plugin.
    ///
    /// # Errors
    /// [`Failure::Operation`].
    pub(crate) fn request(&self) -> Result<(), Failure> {
        Ok(self.files.write(&self.request)?)
    }

    /// The file where the plugin writes its progress.
    pub(crate) fn progress(&self) -> &Path {
        &self.files.progress
    }

    /// Huge pages for the areas to fill, unless these are sparse.
    pub(crate) fn huge_pages(&self, context: &Context) -> Option<HugePages> {
        let fills = self.bytes > 0 && self.is_dense();
        fills
            .then(|| HugePages::if_wanted(&context.settings))
            .flatten()
    }

    /// After a restore that CRIU reports as successful: checks the plugin's report.
    ///
    /// # Errors
    /// [`WithoutMemory`] if the plugin did not fill all areas.
    pub(crate) fn succeeded(&self, timeline: &mut Timeline<'_>) -> Result<(), WithoutMemory> {
        let report = self.files.report().unwrap_or_default();
        let is_whole = report.areas == self.areas && report.error.is_none();
        request::record_report(timeline, "criu restore", "refill", report);
        if is_whole { Ok(()) } else { Err(WithoutMemory) }
    }

    /// After a failed restore: the plugin's error, if the plugin failed.
    pub(crate) fn failed(&self) -> MemoryFailure {
        let report = self.files.report();
        MemoryFailure {
            moved: report.as_ref().map(|report| report.bytes),
            error: report.and_then(|report| report.error),
            not_returned: None,
        }
    }
}

/// The bytes of all huge pages that the stored pages are in.
fn with_huge_pages(index: &Index) -> u64 {
    let (mut last, mut count) = (None, 0);
    for area in index.areas() {
        for chunk in &area.chunks {
            let start = area.start + u64::from(chunk.number) * CHUNK as u64;
            for run in chunk.pages.runs() {
                let from = start + run.offset as u64;
                let (from, to) = (from / HUGE_PAGE, (from + run.bytes as u64 - 1) / HUGE_PAGE);
                // Neighbours share one.
                count += to - from + u64::from(last != Some(from));
                last = Some(to);
            }
        }
    }
    count * HUGE_PAGE
}

/// The environment that passes the plugin directory and the request to CRIU at a restore.
pub(crate) fn environment<'a>(
    plugins: &'a Plugins,
    memory: Option<&'a MemoryRestore>,
) -> Environment<'a> {
    Environment {
        plugins: &plugins.directory,
        memory_request: memory.map(|memory| memory.files.request.as_path()),
    }
}

/// Checks that index and manifest name the same checkpoint. An image without a manifest was made
/// without stasis: by a plain runc that was given the plugin.
fn check_name(image: &Path, index: &Index, manifest: &Manifest) -> Result<(), BulkMemoryError> {
    let expected = match &manifest.memory {
        Some(stored) if stored.image_id == index.image_id => return Ok(()),
        None if manifest.is_implied() => return Ok(()),
        Some(stored) => stored.image_id.to_string(),
        None => "that there is none".to_owned(),
    };
    Err(BulkMemoryError::OtherImage {
        image: image.to_owned(),
        found: index.image_id.to_string(),
        expected,
    })
}

/// Finds the directory with all packs; `None` if it is the image's. Only our settings decide which
/// directories are searched.
fn find_packs(
    stores: &Stores,
    image: &Path,
    index: &Index,
    manifest: &Manifest,
) -> Result<Option<(PathBuf, InUse)>, BulkMemoryError> {
    // `Reader::open` checks every pack.
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
        // The RAM tier first, which is faster.
        Tier::Ram => (
            vec![at(&stores.ram), at(&stores.disk)],
            why_not_durable(manifest),
        ),
    };
    let mut not_whole = None;
    for place in &places {
        let Ok(Some(in_use)) = in_use::hold(place) else {
            continue;
        };
        match are_in(Some(place)) {
            Ok(()) => return Ok(Some((place.clone(), in_use))),
            Err(error) => not_whole = Some(error),
        }
    }
    if let Some(error) = not_whole {
        return Err(error.into());
    }
    let searched: Vec<_> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    Err(BulkMemoryError::Gone {
        searched: searched.join(" or "),
        why,
    })
}

fn why_not_durable(manifest: &Manifest) -> &'static str {
    let boot = manifest
        .memory
        .as_ref()
        .and_then(|stored| stored.boot_id.as_ref());
    if boot.is_some() && boot == boot_id().as_ref() {
        ": it was in this machine's memory, was deleted from there, and was not, or not yet, on \
         disk"
    } else {
        ": it was in a machine's memory alone when that machine restarted, since its copy to disk \
         was not complete, or it is on another machine"
    }
}

#[cfg(test)]
mod tests;
