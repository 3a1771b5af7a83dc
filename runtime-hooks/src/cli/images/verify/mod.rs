//! An image judged: whether it is whole, and whether a restore of it would begin on this
//! machine. Changes nothing.

mod about;
mod contents;
mod elsewhere;
mod here;

use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{StoreError, refuse_arriving};

use crate::bulk_memory::plugin;
use crate::bulk_memory::restore::FoundMemory;
use crate::cli::command_error::ImageError;
use crate::container::host_memory::NoHostMemory;
use crate::error::kind::Kind;
use crate::error::{Refusal, chain};
use crate::image::allowed::admit;
use crate::image::contents::{Expected, ExpectedFile, Files};
use crate::image::directory::is_settled;
use crate::image::manifest::Manifest;
use crate::preflight::capabilities::Capabilities;
use crate::restore::admission::node::{self, When, Whose};
use crate::restore::host_memory::image_bytes;
use crate::restore::image::{self, Found};

pub(super) use about::About;
pub(super) use elsewhere::look_elsewhere;
pub(super) use here::{Expects, judge};

const NO_MANIFEST: &str = "stasis.json is missing: it was a container with GPU state, or memory \
    that CRIU does not have, and GPU state cannot be restored; use a whole copy";
const PLAIN: &str = "plain image: CRIU's files only; not verified, as they have no checksums";
const UNLISTED: &str = "it does not list its files, so CRIU's were not verified: its checkpoint was \
    cut off";
/// The beginning of the name of the driver's library.
const DRIVER_LIBRARY: &[u8] = b"libcuda.so";

/// How much of an image is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    InPart,
    Complete,
}

/// What was found of an image.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its directory.
    pub(crate) image: PathBuf,
    /// Whether a restore would begin, for all that was read and asked; `None`: nothing says that
    /// the image is whole.
    pub(crate) restorable: Option<bool>,
    /// Whether it is one of CRIU's files alone, which the low-level runtime restores.
    pub(crate) is_plain: bool,
    /// The kind with which it would be refused.
    pub(crate) kind: Option<Kind>,
    /// Everything for which it would be refused.
    pub(crate) refusals: Vec<Refused>,
    /// What people should know.
    pub(crate) notes: Vec<String>,
    /// What its manifest says; `None` if it has none, or one that cannot be read.
    pub(crate) manifest: Option<About>,
    /// Where its GPU contents are, if they were read: in the image itself, or apart from it.
    pub(crate) memory: Option<PathBuf>,
}

/// One reason for which a restore would be refused.
#[derive(Debug, Serialize)]
pub(crate) struct Refused {
    /// Its kind.
    pub(crate) kind: Kind,
    /// The message.
    pub(crate) text: String,
}

/// How much of an image is read, and what is asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Our own files, and whether this machine could take it.
    Records,
    /// All of it, and all of its bulk memory. The machine is not asked.
    Contents,
    /// Both, and that all is here that it takes for granted.
    Here,
}

/// Reads the image in a directory.
///
/// # Errors
/// [`ImageError`]; reasons for which a restore would be refused are in the report.
pub(crate) fn look(
    settings: &Settings,
    directory: &Path,
    reading: Reading,
) -> Result<Report, ImageError> {
    let mut report = Report::of(directory);
    match admit(&settings.restore.images, directory) {
        Ok(admitted) => report.image = admitted,
        Err(error) => {
            report.refuse(&error.into());
            return Ok(report);
        }
    }
    if !is_settled(&report.image) {
        return Err(ImageError::CutOff(directory.to_owned()));
    }
    let Some(arrival) = report.arrival(reading) else {
        return Ok(report);
    };
    match image::find(&report.image) {
        Ok(Found::Image(manifest)) => report.read(settings, &manifest, reading, arrival),
        Ok(Found::Plain) => report.without_manifest(),
        Ok(Found::Nothing) => return Err(ImageError::NoImage(directory.to_owned())),
        Err(error) => report.refuse(&error),
    }
    Ok(report)
}

impl Report {
    /// Nothing was found yet.
    fn of(image: &Path) -> Self {
        Self {
            image: image.to_owned(),
            restorable: Some(true),
            is_plain: false,
            kind: None,
            refusals: Vec::new(),
            notes: Vec::new(),
            manifest: None,
            memory: None,
        }
    }

    /// How much of the image is there, if that is enough for this reading. A restore waits for the
    /// rest.
    fn arrival(&mut self, reading: Reading) -> Option<Arrival> {
        match (refuse_arriving(&self.image), reading) {
            (Ok(()), _) => return Some(Arrival::Complete),
            (Err(StoreError::Arriving { .. }), Reading::Records | Reading::Here) => {
                let note = "it is arriving from elsewhere, and not all of it is there";
                self.notes.push(note.to_owned());
                return Some(Arrival::InPart);
            }
            (Err(error), _) => self.refuse(&error.into()),
        }
        None
    }

    /// CRIU's files alone: whether GPU state belongs to them they do not say, but for the driver's
    /// libraries, which only a process with CUDA has mapped.
    fn without_manifest(&mut self) {
        let expected = Files::of(&self.image).and_then(|files| Expected::read(&files));
        let expected = match expected {
            Ok(expected) => expected,
            Err(error) => return self.add(error.kind(), chain(&error)),
        };
        let is_driver = |file: &ExpectedFile| {
            let path = file.path();
            let name = path.file_name().unwrap_or_default();
            name.as_encoded_bytes().starts_with(DRIVER_LIBRARY)
        };
        self.is_plain = !expected.files.iter().any(is_driver);
        self.not_known(if self.is_plain { PLAIN } else { NO_MANIFEST });
    }

    fn read(
        &mut self,
        settings: &Settings,
        manifest: &Manifest,
        reading: Reading,
        arrival: Arrival,
    ) {
        self.manifest = Some(About::of(manifest));
        if manifest.files.is_none() {
            self.not_known(UNLISTED);
        }
        // In the order of a restore, so that the first refusal is its.
        let memory = self.find_memory(settings, manifest, reading);
        let bulk = memory.as_ref().map_or(0, FoundMemory::bytes);
        if reading != Reading::Contents {
            match image_bytes(&self.image) {
                Ok(pages) => self.ask(settings, manifest, pages.saturating_add(bulk), reading),
                Err(error) => self.refuse(&NoHostMemory::from(error).into()),
            }
        }
        if reading == Reading::Records || arrival == Arrival::InPart {
            return;
        }
        if let Err(error) = image::verify(settings, &self.image, manifest) {
            self.refuse(&error.into());
        }
        if let Some(memory) = memory {
            self.read_memory(&memory);
        }
    }

    /// Asks whether this machine can take it, which needs so many bytes of host memory.
    fn ask(&mut self, settings: &Settings, manifest: &Manifest, bytes: u64, reading: Reading) {
        let asked = node::ask(settings, manifest, bytes, Whose::Anybodys, When::Now);
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => return self.refuse(&error),
        };
        self.notes.extend(asked.notes);
        match asked.other_libraries {
            Some(why) if reading == Reading::Here => self.add(Kind::OtherDriver, why),
            why => self.notes.extend(why),
        }
    }

    fn find_memory(
        &mut self,
        settings: &Settings,
        manifest: &Manifest,
        reading: Reading,
    ) -> Option<FoundMemory> {
        let usable = || plugin::usable(&settings.gpu_contents, &Capabilities::probe(settings));
        let plugin = (reading != Reading::Contents).then(usable);
        let plugin = plugin
            .as_ref()
            .map_or(Ok(()), |usable| usable.as_ref().map(drop));
        let found = FoundMemory::find(settings, &self.image, manifest, plugin);
        found.unwrap_or_else(|error| {
            self.refuse(&error.into());
            None
        })
    }

    /// A restore reads it while it gives it to the processes.
    fn read_memory(&mut self, memory: &FoundMemory) {
        let packs = memory.store().unwrap_or(&self.image).to_owned();
        let (mut first, mut places) = (None, 0_usize);
        contents::read_all(memory.index(), &packs, |damage| {
            first.get_or_insert(damage);
            places += 1;
        });
        if let Some(first) = first {
            let text = format!(
                "its GPU contents are damaged in {places} places, the first of which: {first}"
            );
            self.add(Kind::ImageDamaged, text);
        }
        self.memory = Some(packs);
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.add(refusal.kind(), chain(refusal));
    }

    pub(crate) fn add(&mut self, kind: Kind, text: String) {
        self.restorable = Some(false);
        self.kind.get_or_insert(kind);
        self.refusals.push(Refused { kind, text });
    }

    /// Nothing says that the image is whole.
    fn not_known(&mut self, why: &str) {
        self.restorable = self.restorable.filter(|restorable| !restorable);
        self.notes.push(why.to_owned());
    }
}

#[cfg(test)]
mod tests;
