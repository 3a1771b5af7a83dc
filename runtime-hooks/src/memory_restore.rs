//! The bulk memory of an image that is to be restored: whether it is all there, asked before anything is started.

use std::path::{Path, PathBuf};

use stasis_memory_store::{Index, Reader, RestoreOrder, StoreError, Tier};

use crate::criu_plugins::Environment;
use crate::engine::Engine;
use crate::error::Failure;
use crate::huge_pages::HugePages;
use crate::manifest::Manifest;
use crate::memory_dump::boot_id;
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
    /// What it fills.
    bytes: u64,
}

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
        check_name(image, &index, manifest)?;
        if let Err(why) = &plugins.memory {
            return Err(MemoryDenial::NoPlugin(why.to_string()));
        }
        let stores = Stores::of(&engine.settings);
        let packs = find_packs(&stores, &index, manifest)?;
        // Opening looks at each of them.
        drop(Reader::open(image, &index, packs.as_deref())?);
        let files = OrderFiles::of(directory);
        let chunks = index.areas().flat_map(|area| &area.chunks);
        Ok(Some(Self {
            bytes: chunks.map(|chunk| chunk.pages.bytes() as u64).sum(),
            order: RestoreOrder {
                image_id: index.image_id,
                directory: packs,
                threads: engine.settings.bulk_memory.threads_here(),
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

    /// After a restore by CRIU: what the plugin did.
    pub(crate) fn tell(&self, timeline: &mut Timeline<'_>) {
        if let Some(report) = self.files.report() {
            memory_order::tell(timeline, "criu restore", "refill", report);
        }
    }

    /// After a restore that failed: what the plugin said, if it was the plugin that failed.
    pub(crate) fn failed(&self) -> Option<String> {
        self.files.report()?.error
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

/// The directory of the packs; `None` if it is the image's. Where it is follows from our settings alone.
fn find_packs(
    stores: &Stores,
    index: &Index,
    manifest: &Manifest,
) -> Result<Option<PathBuf>, MemoryDenial> {
    let at = |parent: &Path| parent.join(index.image_id.to_string());
    let (places, why) = match index.tier {
        Tier::Portable => return Ok(None),
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
    if let Some(place) = places.iter().find(|place| place.is_dir()) {
        return Ok(Some(place.clone()));
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
mod tests {
    use super::*;
    use crate::manifest::StoredMemory;
    use stasis_memory_store::ImageId;

    fn index(tier: Tier) -> Index {
        Index {
            image_id: ImageId::new(7),
            tier,
            packs: Vec::new(),
            processes: Vec::new(),
        }
    }

    fn manifest(id: u128, boot_id: Option<String>) -> Manifest {
        let mut manifest = Manifest::new("c1", String::new(), String::new());
        manifest.memory = Some(StoredMemory {
            image_id: ImageId::new(id),
            tier: Tier::Ram,
            boot_id,
        });
        manifest
    }

    #[test]
    fn an_index_of_another_checkpoint_is_refused() {
        let check = |manifest: &Manifest| {
            let checked = check_name(Path::new("/image"), &index(Tier::Disk), manifest);
            checked.map_err(|denial| denial.to_string())
        };
        assert_eq!(check(&manifest(7, None)), Ok(()));
        let said = check(&manifest(8, None)).unwrap_err();
        assert!(said.contains(&ImageId::new(7).to_string()), "{said}");
        assert!(said.contains(&ImageId::new(8).to_string()), "{said}");
        let none = Manifest::new("c1", String::new(), String::new());
        assert!(check(&none).is_err());
        assert_eq!(check(&Manifest::implied("c1")), Ok(()));
    }

    #[test]
    fn memory_comes_first_and_a_missing_place_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let stores = Stores {
            disk: directory.path().join("disk"),
            ram: directory.path().join("ram"),
        };
        let find = |tier, boot| find_packs(&stores, &index(tier), &manifest(7, boot));
        assert_eq!(find(Tier::Portable, None).unwrap(), None);
        let said = find(Tier::Ram, Some("other".into()))
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("restarted") && said.contains("/disk/"),
            "{said}"
        );
        let said = find(Tier::Ram, boot_id()).unwrap_err().to_string();
        assert!(said.contains("deleted"), "{said}");
        let [disk, ram] =
            [&stores.disk, &stores.ram].map(|parent| parent.join(ImageId::new(7).to_string()));
        std::fs::create_dir_all(&disk).unwrap();
        assert_eq!(find(Tier::Ram, None).unwrap(), Some(disk.clone()));
        std::fs::create_dir_all(&ram).unwrap();
        assert_eq!(find(Tier::Ram, None).unwrap(), Some(ram));
        assert_eq!(find(Tier::Disk, None).unwrap(), Some(disk));
    }
}
