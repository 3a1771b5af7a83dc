//! `stasis check --image`: reads an image as a restore does before it starts anything, and all of
//! its GPU contents as well. Changes nothing.

mod about;
mod contents;
mod elsewhere;
mod here;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{StoreError, refuse_arriving};

use crate::bulk_memory::plugin;
use crate::bulk_memory::restore::FoundMemory;
use crate::cli::answer::name;
use crate::container::host_memory::NoHostMemory;
use crate::error::kind::Kind;
use crate::error::{Refusal, chain};
use crate::image::allowed::admit;
use crate::image::directory::is_settled;
use crate::image::manifest::Manifest;
use crate::preflight::capabilities::Capabilities;
use crate::restore::admission::node::{self, When, Whose};
use crate::restore::host_memory::image_bytes;
use crate::restore::image::{self, Found};

pub use about::About;
pub(crate) use elsewhere::look_elsewhere;
pub(crate) use here::{Expects, judge};

/// What was found of an image.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its directory.
    pub image: PathBuf,
    /// Whether a restore would begin on this machine, now.
    pub restorable: bool,
    /// The kind with which it would be refused.
    pub kind: Option<Kind>,
    /// Everything for which it would be refused.
    pub refusals: Vec<Refused>,
    /// What people should know.
    pub notes: Vec<String>,
    /// What its manifest says; `None` if it has none, or one that cannot be read.
    pub manifest: Option<About>,
    /// Where its GPU contents are, if they were found: in the image itself, or apart from it.
    pub memory: Option<PathBuf>,
}

/// One reason for which a restore would be refused.
#[derive(Debug, Serialize)]
pub struct Refused {
    /// Its kind.
    pub kind: Kind,
    /// The message.
    pub text: String,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckImageError {
    /// There is none.
    #[error("there is no image in {0}")]
    NoImage(PathBuf),
    /// It is in two directories.
    #[error(
        "a checkpoint was cut off while its image took the place of an earlier one in {0}; the \
         next restore from there, or checkpoint into it, finishes that"
    )]
    CutOff(PathBuf),
}

impl CheckImageError {
    /// Why there is no report.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoImage(_) => Kind::ImageDirectory,
            Self::CutOff(_) => Kind::CutOff,
        }
    }
}

/// Reads the image in a directory, and asks whether this machine can restore it.
///
/// # Errors
/// [`CheckImageError`]; reasons for which a restore would be refused are in the report.
pub fn check_image(settings: &Settings, directory: &Path) -> Result<Report, CheckImageError> {
    look(settings, directory, Reading::Everything)
}

/// What is read of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// What it says of itself: whether its contents are as it says is not known then.
    Records,
    /// The same, and whether all that it takes for granted is here.
    Here,
    /// All of it, and all of its bulk memory.
    Everything,
}

/// The same for less than all of it.
pub(crate) fn look(
    settings: &Settings,
    directory: &Path,
    reading: Reading,
) -> Result<Report, CheckImageError> {
    let mut report = Report::of(directory);
    match admit(&settings.restore.images, directory) {
        Ok(admitted) => report.image = admitted,
        Err(error) => {
            report.refuse(&error.into());
            return Ok(report);
        }
    }
    if !is_settled(&report.image) {
        return Err(CheckImageError::CutOff(directory.to_owned()));
    }
    if !report.has_arrived(reading) {
        return Ok(report);
    }
    // An image without a manifest does not say whose it is.
    match image::find(&report.image) {
        Ok(Found::Image(manifest)) => report.read(settings, &manifest, reading),
        Ok(Found::Plain) => report.notes.push(
            "it has no manifest, so nothing is known of it: the low-level runtime would restore it"
                .to_owned(),
        ),
        Ok(Found::Nothing) => return Err(CheckImageError::NoImage(directory.to_owned())),
        Err(error) => report.refuse(&error),
    }
    Ok(report)
}

impl Report {
    /// Nothing was found yet.
    fn of(image: &Path) -> Self {
        Self {
            image: image.to_owned(),
            restorable: true,
            kind: None,
            refusals: Vec::new(),
            notes: Vec::new(),
            manifest: None,
            memory: None,
        }
    }

    /// Whether there is enough of the image for this reading. A restore waits for the rest.
    fn has_arrived(&mut self, reading: Reading) -> bool {
        match (refuse_arriving(&self.image), reading) {
            (Ok(()), _) => return true,
            (Err(StoreError::Arriving { .. }), Reading::Records | Reading::Here) => {
                let note = "it is arriving from elsewhere, and not all of it is there";
                self.notes.push(note.to_owned());
                return true;
            }
            (Err(error), _) => self.refuse(&error.into()),
        }
        false
    }

    fn read(&mut self, settings: &Settings, manifest: &Manifest, reading: Reading) {
        self.manifest = Some(About::of(manifest));
        if manifest.files.is_none() {
            self.notes.push(
                "it does not list its files, so CRIU's were not verified: its checkpoint was cut off"
                    .to_owned(),
            );
        }
        // In the order of a restore, so that the first refusal is its.
        let memory = self.find_memory(settings, manifest);
        let bulk = memory.as_ref().map_or(0, FoundMemory::bytes);
        match image_bytes(&self.image) {
            Ok(pages) => self.ask(settings, manifest, pages.saturating_add(bulk), reading),
            Err(error) => self.refuse(&NoHostMemory::from(error).into()),
        }
        if reading != Reading::Everything {
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

    fn find_memory(&mut self, settings: &Settings, manifest: &Manifest) -> Option<FoundMemory> {
        let plugin = plugin::usable(&settings.gpu_contents, &Capabilities::probe(settings));
        let plugin = plugin.as_ref().map(drop);
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

    fn add(&mut self, kind: Kind, text: String) {
        self.restorable = false;
        self.kind.get_or_insert(kind);
        self.refusals.push(Refused { kind, text });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "image {}", name(&self.image.display()))?;
        if let Some(manifest) = &self.manifest {
            writeln!(f, "{manifest}")?;
        }
        if let Some(memory) = &self.memory {
            writeln!(f, "  GPU contents in {}", name(&memory.display()))?;
        }
        for note in &self.notes {
            writeln!(f, "{}", name(note))?;
        }
        for refused in &self.refusals {
            writeln!(f, "{} [{}]", name(&refused.text), refused.kind)?;
        }
        match self.kind {
            Some(kind) => write!(f, "a restore would be refused [{kind}]"),
            None => f.write_str("a restore would begin"),
        }
    }
}

#[cfg(test)]
mod tests;
