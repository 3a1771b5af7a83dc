//! The findings about an image.

use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_engine::bulk_memory::places::of_image;
use stasis_engine::error::kind::Kind;
use stasis_engine::error::{Refusal, chain};
use stasis_engine::image::manifest::Manifest;
use stasis_transfer::Origin;

use super::here::Expects;

/// The findings about an image.
#[derive(Debug, Serialize)]
pub(crate) struct VerifyReport {
    /// Its directory, or its reference elsewhere.
    pub(crate) image: PathBuf,
    /// Whether a restore would begin, for all that was read and checked; `None`: nothing shows that
    /// the image is whole.
    pub(crate) restorable: Option<bool>,
    /// Whether it has CRIU's files alone, which the low-level runtime restores.
    #[serde(skip)]
    pub(crate) is_plain: bool,
    /// The kind with which it would be refused.
    pub(crate) kind: Option<Kind>,
    /// All reasons for which it would be refused.
    pub(crate) refusals: Vec<Refused>,
    /// Bytes of its files on disk, or of all of it elsewhere.
    pub(crate) bytes: u64,
    /// Bytes that its processes held on GPUs.
    pub(crate) gpu_bytes: Option<u64>,
    /// The directory of GPU contents that lie apart, by the settings.
    pub(crate) contents: Option<PathBuf>,
    /// Where all GPU contents were read: in the image itself, or apart from it.
    pub(crate) memory: Option<PathBuf>,
    /// Its manifest; `None` if it has none, or one that cannot be read.
    pub(crate) manifest: Option<Manifest>,
    /// Where it came from and was pushed, as far as that is noted.
    pub(in crate::images) origin: Option<Origin>,
    /// Notes for people.
    pub(crate) notes: Vec<String>,
    /// Its needs; only where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expects: Option<Expects>,
}

/// One reason for which a restore would be refused.
#[derive(Debug, Serialize)]
pub(crate) struct Refused {
    /// Its kind.
    pub(crate) kind: Kind,
    /// The message.
    pub(crate) text: String,
}

impl VerifyReport {
    /// Names the archive: its unpacked files are removed.
    pub(crate) fn of_archive(mut self, archive: &Path) -> Self {
        let is_within = |packs: &PathBuf| packs.starts_with(&self.image);
        if self.memory.as_ref().is_some_and(is_within) {
            self.memory = Some(archive.to_owned());
        }
        self.image = archive.to_owned();
        self
    }

    /// Makes a report without findings.
    pub(super) fn of(image: &Path, bytes: u64) -> Self {
        Self {
            image: image.to_owned(),
            restorable: Some(true),
            is_plain: false,
            kind: None,
            refusals: Vec::new(),
            bytes,
            gpu_bytes: None,
            contents: None,
            memory: None,
            manifest: None,
            origin: None,
            notes: Vec::new(),
            expects: None,
        }
    }

    /// Records its manifest, and what follows from that.
    pub(super) fn say(&mut self, settings: &Settings, manifest: Manifest) {
        let directory = settings.gpu_contents.directory();
        let apart = manifest.contents_apart();
        self.contents = apart.and_then(|apart| Some(of_image(directory?, apart)));
        self.gpu_bytes = Some(manifest.gpu_bytes());
        self.manifest = Some(manifest);
    }

    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        self.add(refusal.kind(), chain(refusal));
    }

    pub(super) fn add(&mut self, kind: Kind, text: String) {
        self.restorable = Some(false);
        self.kind.get_or_insert(kind);
        self.refusals.push(Refused { kind, text });
    }

    /// Records that nothing shows that the image is whole.
    pub(super) fn not_known(&mut self, why: &str) {
        self.restorable = self.restorable.filter(|restorable| !restorable);
        self.notes.push(why.to_owned());
    }
}
