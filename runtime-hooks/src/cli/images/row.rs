//! One image.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{ImageId, PacksIn};
use stasis_oci_image::Reference;

use super::moved::describe;
use super::origin::Origin;
use super::verify::{About, Expects, Reading, Refused, Report, judge, look, look_elsewhere};
use crate::bulk_memory::places::of_image;
use crate::cli::command_error::MoveError;
use crate::error::chain;
use crate::error::kind::Kind;

/// An image, and whether it can be restored here.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Its directory, or what it is called elsewhere.
    pub(super) image: PathBuf,
    /// Whether a restore would begin, for all that was read and asked; `None`: nothing says that
    /// the image is whole.
    pub(super) restorable: Option<bool>,
    /// The kind with which it would be refused.
    pub(super) kind: Option<Kind>,
    /// All reasons for that.
    pub(super) refusals: Vec<Refused>,
    /// Bytes of its files on disk, or of all of it elsewhere.
    pub(super) bytes: u64,
    /// The id that the image shares with its GPU contents.
    pub(super) image_id: Option<ImageId>,
    /// Where those lie: in the image, or apart from it.
    pub(super) packs_in: Option<PacksIn>,
    /// The directory of those that lie apart, by the settings.
    pub(super) contents: Option<PathBuf>,
    /// Where all of them were read.
    pub(super) memory: Option<PathBuf>,
    /// What its manifest says.
    pub(super) manifest: Option<About>,
    /// Where it came from and went, as far as that is noted.
    pub(super) origin: Option<Origin>,
    /// What people should know.
    pub(super) notes: Vec<String>,
    /// What it takes for granted; only where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    expects: Option<Expects>,
}

impl Row {
    pub(super) fn of(settings: &Settings, directory: &Path, reading: Reading) -> Self {
        let bytes = bytes_in(directory);
        match look(settings, directory, reading) {
            Ok(report) => Self::from_report(settings, report, bytes),
            Err(error) => Self::without(directory, bytes, error.kind(), chain(&error)),
        }
    }

    /// Whether it would run here, in the container of this bundle.
    pub(super) fn here(settings: &Settings, directory: &Path, bundle: Option<&Path>) -> Self {
        let bytes = bytes_in(directory);
        let mut report = match look(settings, directory, Reading::Here) {
            Ok(report) => report,
            Err(error) => return Self::without(directory, bytes, error.kind(), chain(&error)),
        };
        Self {
            expects: judge(settings, &mut report, bundle),
            ..Self::from_report(settings, report, bytes)
        }
    }

    /// The same of an image that is elsewhere, of which no contents are fetched.
    pub(super) fn elsewhere(
        settings: &Settings,
        reference: &Reference,
        authfile: Option<&Path>,
    ) -> Result<Self, MoveError> {
        let (image, bytes) = describe(reference, authfile)?;
        let report = look_elsewhere(settings, &reference.to_string(), &image);
        Ok(Self::from_report(settings, report, bytes))
    }

    fn without(directory: &Path, bytes: u64, kind: Kind, text: String) -> Self {
        Self {
            image: directory.to_owned(),
            restorable: Some(false),
            kind: Some(kind),
            refusals: vec![Refused { kind, text }],
            bytes,
            image_id: None,
            packs_in: None,
            contents: None,
            memory: None,
            manifest: None,
            origin: None,
            notes: Vec::new(),
            expects: None,
        }
    }

    pub(super) fn from_report(settings: &Settings, report: Report, bytes: u64) -> Self {
        let memory = report.manifest.as_ref();
        let memory = memory.and_then(|manifest| manifest.memory.as_ref());
        let apart = memory.filter(|memory| memory.packs_in == PacksIn::Directory);
        let directory = settings.gpu_contents.directory();
        Self {
            image_id: memory.map(|memory| memory.image_id),
            packs_in: memory.map(|memory| memory.packs_in),
            contents: apart.and_then(|apart| Some(of_image(directory?, apart.image_id))),
            memory: report.memory,
            origin: Origin::of(&report.image),
            image: report.image,
            restorable: report.restorable,
            kind: report.kind,
            refusals: report.refusals,
            bytes,
            manifest: report.manifest,
            notes: report.notes,
            expects: None,
        }
    }
}

/// All of an image: its files lie side by side.
pub(super) fn bytes_in(directory: &Path) -> u64 {
    let bytes = files_in(directory).map(|(_, bytes)| bytes);
    bytes.fold(0, u64::saturating_add)
}

/// The names and lengths of the files in a directory.
pub(super) fn files_in(directory: &Path) -> impl Iterator<Item = (String, u64)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let file = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((name, file.len()))
    })
}
