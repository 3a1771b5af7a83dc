//! Checks whether this machine can take a remote image, before its contents are fetched.

use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_memory_store::Index;

use super::node::{When, Whose, ask};
use crate::bulk_memory::plugin;
use crate::bulk_memory::restore::host_bytes;
use crate::error::bulk_memory::BulkMemoryError;
use crate::error::kind::Kind;
use crate::error::{Refusal, chain};
use crate::image::manifest::Manifest;
use crate::preflight::capabilities::Capabilities;
use crate::restore::host_memory::listed_bytes;

/// The description of an image: all that is known of it without its contents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Described {
    /// Its manifest.
    pub manifest: Manifest,
    /// The host memory that its bulk memory takes, bytes; none if CRIU's files have all.
    bulk: Option<u64>,
}

/// Why an image is not worth fetching.
#[derive(Debug)]
pub struct Unfit {
    /// The kind of the error.
    pub kind: Kind,
    /// The reason, for people.
    pub why: String,
}

impl Described {
    /// Describes an image by its manifest and its index.
    pub fn of(manifest: Manifest, index: Option<&Index>) -> Self {
        let index = index.filter(|index| !index.is_empty());
        Self {
            manifest,
            bulk: index.map(host_bytes),
        }
    }

    /// The host memory that it takes, bytes.
    pub fn bytes(&self) -> u64 {
        let files = self.manifest.files.as_deref().unwrap_or_default();
        listed_bytes(files).saturating_add(self.bulk.unwrap_or(0))
    }

    /// Whether there is a plugin that fills in its bulk memory.
    pub fn check_plugin(&self, settings: &Settings) -> Result<(), BulkMemoryError> {
        if self.bulk.is_none() {
            return Ok(());
        }
        let plugin = plugin::usable(&settings.gpu_contents, &Capabilities::probe(settings));
        let plugin = plugin.map(drop);
        plugin.map_err(|why| BulkMemoryError::NoPlugin(why.to_string()))
    }

    /// Refuses an image that this machine could not restore even if all its memory were free.
    pub fn check(&self, settings: &Settings, whose: Whose<'_>) -> Result<(), Unfit> {
        self.check_plugin(settings).map_err(Refusal::from)?;
        let asked = ask(settings, &self.manifest, self.bytes(), whose, When::Later)?;
        asked.other_libraries.map_or(Ok(()), |why| {
            let kind = Kind::OtherDriver;
            Err(Unfit { kind, why })
        })
    }
}

impl From<Refusal> for Unfit {
    fn from(refusal: Refusal) -> Self {
        Self {
            kind: refusal.kind(),
            why: chain(&refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::files::ImageFile;
    use crate::image::manifest::MadeOn;

    fn of(change: impl FnOnce(&mut Manifest)) -> Result<(), Kind> {
        let mut manifest = Manifest::new("job", String::new(), "580.95.05".to_owned());
        change(&mut manifest);
        let described = Described::of(manifest, None);
        // As received from the process that pulls.
        let told = serde_json::to_string(&described).unwrap();
        let described: Described = serde_json::from_str(&told).unwrap();
        let checked = described.check(&Settings::default(), Whose::Anybodys);
        checked.map_err(|unfit| unfit.kind)
    }

    fn pages(bytes: u64) -> impl FnOnce(&mut Manifest) {
        let file = |name: &str, bytes| ImageFile {
            name: name.to_owned(),
            bytes,
            blake3: None,
        };
        move |manifest| {
            let others = file("core-1.img", u64::MAX);
            manifest.files = Some(vec![others, file("pages-1.img", bytes)]);
        }
    }

    #[test]
    fn an_image_says_before_it_is_fetched_that_it_will_not_run_here() {
        assert_eq!(of(|_| ()), Ok(()));
        assert_eq!(of(pages(1 << 20)), Ok(()));
        assert_eq!(of(pages(1 << 60)), Err(Kind::NoHostMemory));
        let other_cpu = |manifest: &mut Manifest| {
            manifest.made_on = Some(MadeOn {
                kernel: "6.1".to_owned(),
                criu: None,
                cpu: ["avx4096f".to_owned()].into(),
            });
        };
        assert_eq!(of(other_cpu), Err(Kind::OtherCpu));
    }
}
