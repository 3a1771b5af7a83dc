//! Finds the bulk memory of an image before anything is started. Changes nothing.

use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_memory_store::{Index, PacksIn, Reader};

use super::extent::Extent;
use crate::bulk_memory::in_use::{self, InUse};
use crate::bulk_memory::places;
use crate::bulk_memory::plugin::PluginUnavailable;
use crate::error::bulk_memory::BulkMemoryError;
use crate::image::manifest::Manifest;

/// Bulk memory all of whose files exist.
#[derive(Debug)]
pub struct FoundMemory {
    pub(super) index: Index,
    pub(super) extent: Extent,
    /// The store with its packs, unless they are in the image.
    pub(super) store: Option<(PathBuf, InUse)>,
}

impl FoundMemory {
    /// Finds the bulk memory of an image. `None` if CRIU's images hold all memory.
    pub fn find(
        settings: &Settings,
        image: &Path,
        manifest: &Manifest,
        plugin: Result<(), &PluginUnavailable>,
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
        plugin.map_err(|why| BulkMemoryError::NoPlugin(why.to_string()))?;
        let store = find_packs(settings.gpu_contents.directory(), image, &index)?;
        let directory = store.as_ref().map(|(directory, _)| directory.as_path());
        let reader = Reader::open(image, &index, directory)?;
        Ok(Some(Self {
            extent: Extent::of(&index, Some(&reader)),
            index,
            store,
        }))
    }

    /// The image's index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The directory of its packs, if they are not in the image.
    pub fn store(&self) -> Option<&Path> {
        self.store
            .as_ref()
            .map(|(directory, _)| directory.as_path())
    }

    /// The host memory that it takes, bytes.
    pub fn bytes(&self) -> u64 {
        self.extent.new_bytes
    }
}

/// Checks that index and manifest name the same checkpoint.
fn check_name(image: &Path, index: &Index, manifest: &Manifest) -> Result<(), BulkMemoryError> {
    let expected = match &manifest.memory {
        Some(stored) if stored.image_id == index.image_id => return Ok(()),
        Some(stored) => stored.image_id.to_string(),
        None => "that there is none".to_owned(),
    };
    Err(BulkMemoryError::OtherImage {
        image: image.to_owned(),
        found: index.image_id.to_string(),
        expected,
    })
}

/// Checks that a store was written with this index.
fn check_store(image: &Path, index: &Index, store: &Path) -> Result<(), BulkMemoryError> {
    match index.is_of_store(store)? {
        true => Ok(()),
        false => Err(BulkMemoryError::OtherStore {
            image: image.to_owned(),
            store: store.to_owned(),
        }),
    }
}

/// Finds the directory with all packs; `None` if it is the image's. Only our settings decide which
/// directory is searched.
fn find_packs(
    apart: Option<&Path>,
    image: &Path,
    index: &Index,
) -> Result<Option<(PathBuf, InUse)>, BulkMemoryError> {
    // `Reader::open` checks every pack.
    if index.packs_in == PacksIn::Image {
        Reader::open(image, index, None)?;
        return Ok(None);
    }
    let id = index.image_id;
    let apart = apart.ok_or(BulkMemoryError::Nowhere { id })?;
    let packs = places::of_image(apart, id);
    let Ok(Some(in_use)) = in_use::hold(&packs) else {
        let directory = apart.to_owned();
        return Err(BulkMemoryError::Gone { id, directory });
    };
    check_store(image, index, &packs)?;
    Reader::open(image, index, Some(&packs))?;
    Ok(Some((packs, in_use)))
}

#[cfg(test)]
pub(super) mod tests;
