//! Judges an image: whether it is whole, and whether a restore of it would begin on this machine.
//! Changes nothing.

mod contents;
mod here;
mod report;

use std::path::Path;

use stasis_config::Settings;
use stasis_engine::bulk_memory::plugin;
use stasis_engine::bulk_memory::restore::FoundMemory;
use stasis_engine::container::host_memory::NoHostMemory;
use stasis_engine::error::chain;
use stasis_engine::error::kind::Kind;
use stasis_engine::image::allowed::admit;
use stasis_engine::image::contents::{Expected, ExpectedFile, Files};
use stasis_engine::image::directory::open;
use stasis_engine::image::manifest::Manifest;
use stasis_engine::image::pstree;
use stasis_engine::preflight::capabilities::Capabilities;
use stasis_engine::restore::admission::node::{self, When, Whose};
use stasis_engine::restore::host_memory::image_bytes;
use stasis_engine::restore::image::{self, ImageKind};
use stasis_memory_store::{StoreError, refuse_arriving};
use stasis_oci_image::Reference;
use stasis_transfer::{Incoming, MoveError, Origin};

use super::bytes_in;
use crate::command_error::ImageError;
use here::{judge, judge_machine};
pub(crate) use report::{Refused, VerifyReport};

const NO_MANIFEST: &str = "stasis.json is missing: the container had GPU state, or memory that \
    CRIU does not have, which cannot be restored; use a whole copy";
const PLAIN: &str = "plain image: CRIU's files only; not verified, as they have no checksums";
const UNLISTED: &str = "it does not list its files, so that CRIU's were not verified: its checkpoint \
    was killed";
const NOT_KNOWN: &str = "a pull shows which files and mounts the new container must have: ask again \
    then, with --bundle";
/// The beginning of the name of the driver's library.
const DRIVER_LIBRARY: &[u8] = b"libcuda.so";

/// How much of an image has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    InPart,
    Complete,
}

/// How much of an image is read, and what is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Our own files, and whether this machine could take it.
    Records,
    /// All of it, with all of its bulk memory. The machine is not checked.
    Contents,
    /// Both, and all that the image needs on this machine.
    Here,
}

/// Reads the image in a directory. The report says why an image cannot be read.
pub(crate) fn look(settings: &Settings, directory: &Path, reading: Reading) -> VerifyReport {
    let mut report = VerifyReport::of(directory, bytes_in(directory));
    if let Err(error) = report.find(settings, directory, reading) {
        report.add(error.kind(), chain(&error));
    }
    report
}

/// Judges whether the image would run here, in the container of this bundle. Changes nothing.
pub(super) fn look_here(
    settings: &Settings,
    directory: &Path,
    bundle: Option<&Path>,
) -> VerifyReport {
    let mut report = VerifyReport::of(directory, bytes_in(directory));
    match report.find(settings, directory, Reading::Here) {
        Ok(()) => report.expects = judge(settings, &mut report, bundle),
        Err(error) => report.add(error.kind(), chain(&error)),
    }
    report
}

/// Judges the same of an image elsewhere, of which no contents are fetched.
pub(super) fn look_elsewhere(
    settings: &Settings,
    reference: &Reference,
    authfile: Option<&Path>,
) -> Result<VerifyReport, MoveError> {
    let (image, bytes) = Incoming::find(reference, authfile)?.described();
    let mut report = VerifyReport::of(Path::new(&reference.to_string()), bytes);
    if let Err(error) = image.check_plugin(settings) {
        report.refuse(&error.into());
    }
    report.ask(settings, &image.manifest, image.bytes(), Reading::Here);
    report.say(settings, image.manifest);
    judge_machine(settings, &mut report);
    report.notes.push(NOT_KNOWN.to_owned());
    Ok(report)
}

impl VerifyReport {
    fn find(
        &mut self,
        settings: &Settings,
        directory: &Path,
        reading: Reading,
    ) -> Result<(), ImageError> {
        match admit(&settings.restore.images, directory) {
            Ok(admitted) => self.image = admitted,
            Err(error) => {
                self.refuse(&error.into());
                return Ok(());
            }
        }
        self.origin = Origin::of(&self.image);
        let opened = open(settings, &self.image)?;
        self.image = opened.path().to_owned();
        let Some(arrival) = self.arrival(reading) else {
            return Ok(());
        };
        match image::find(&self.image) {
            Ok(ImageKind::Image(manifest)) => {
                self.read(settings, &manifest, reading, arrival);
                self.say(settings, *manifest);
            }
            Ok(ImageKind::Plain) => self.without_manifest(),
            Ok(ImageKind::Nothing) => return Err(ImageError::NoImage(directory.to_owned())),
            Err(error) => self.refuse(&error),
        }
        Ok(())
    }

    /// Returns how much of the image has arrived, if that is enough for this reading. A restore
    /// waits for the rest.
    fn arrival(&mut self, reading: Reading) -> Option<Arrival> {
        match (refuse_arriving(&self.image), reading) {
            (Ok(()), _) => return Some(Arrival::Complete),
            (Err(StoreError::Arriving { .. }), Reading::Records | Reading::Here) => {
                let note = "it is still arriving: a pull has not fetched all of it";
                self.notes.push(note.to_owned());
                return Some(Arrival::InPart);
            }
            (Err(error), _) => self.refuse(&error.into()),
        }
        None
    }

    /// Judges an image of CRIU's files alone. They do not show whether GPU state belongs to them,
    /// but for the driver's libraries, which only a process with CUDA has mapped.
    fn without_manifest(&mut self) {
        if let Err(error) = pstree::read(&self.image) {
            return self.add(Kind::ImageDamaged, chain(&error));
        }
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
        if manifest.files.is_none() {
            self.not_known(UNLISTED);
        }
        // In the order of a restore, so that the first refusal is the restore's.
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

    /// Checks whether this machine can take it, which needs so many bytes of host memory.
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

    /// Reads bulk memory, as a restore does while it gives it to the processes.
    fn read_memory(&mut self, memory: &FoundMemory) {
        let packs = memory.store().unwrap_or(&self.image).to_owned();
        for unusable in contents::read_all(memory.index(), &packs) {
            self.add(unusable.kind, unusable.to_string());
        }
        self.memory = Some(packs);
    }
}

#[cfg(test)]
mod tests;
