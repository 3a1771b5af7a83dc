//! An image where registries' images are, by what its manifest and `stasis.json` say: nothing else
//! of it is fetched.

use std::path::Path;

use serde::Serialize;
use stasis_oci_image::document::annotations::Annotations;
use stasis_oci_image::{Kind, Reference};

use super::report::{Gpu, gpus};
use crate::cli::answer::amount::size;
use crate::cli::command_error::MoveError;
use crate::image::manifest::{FILE_NAME, Manifest};

/// What is known of it without its contents.
#[derive(Debug, Serialize)]
pub(super) struct Elsewhere {
    /// What the user calls it.
    pub(super) reference: String,
    /// Of its manifest.
    pub(super) digest: String,
    /// What the manifest says of it.
    pub(super) annotations: Annotations,
    pub(super) container: String,
    pub(super) created: String,
    pub(super) written_by: String,
    pub(super) driver_version: String,
    /// The kernel and CRIU of the machine that made it, where they are known.
    pub(super) kernel: Option<String>,
    pub(super) criu_version: Option<String>,
    pub(super) gpus: Vec<Gpu>,
    /// Processes with GPU state.
    pub(super) cuda_processes: usize,
    pub(super) gpu_bytes: u64,
    /// All of it there, bytes.
    pub(super) bytes: u64,
    /// Its blobs of bulk memory, and their bytes.
    pub(super) blobs: usize,
    pub(super) bulk_bytes: u64,
    /// Whether it can be pulled into an engine's archive.
    pub(super) archive: bool,
    /// The container image of which it is a checkpoint.
    pub(super) subject: Option<String>,
}

impl Elsewhere {
    /// Reads two small documents.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn read(reference: &Reference, authfile: Option<&Path>) -> Result<Self, MoveError> {
        let from = reference.open(authfile)?;
        let (manifest, digest) = from.manifest(reference.tag())?;
        let config = from.read(manifest.config(), manifest.config().size)?;
        let image = Manifest::from_text(Path::new(FILE_NAME), &config);
        let image = image.map_err(MoveError::refused)?;
        let machine = image.made_on.as_ref();
        let memory = || manifest.layers(Kind::Memory);
        Ok(Self {
            reference: reference.to_string(),
            digest: digest.to_string(),
            annotations: manifest.annotations().clone(),
            kernel: machine.map(|machine| machine.kernel.clone()),
            criu_version: machine.and_then(|machine| machine.criu.clone()),
            gpus: gpus(&image),
            cuda_processes: image.processes.len(),
            gpu_bytes: image.gpu_bytes(),
            bytes: manifest.bytes(),
            blobs: memory().count(),
            bulk_bytes: memory().map(|blob| blob.size).fold(0, u64::saturating_add),
            archive: manifest.layer(Kind::Engine).is_some(),
            subject: manifest.subject().map(|subject| subject.digest.to_string()),
            container: image.container,
            created: image.created,
            written_by: image.written_by,
            driver_version: image.driver_version,
        })
    }

    /// For people: titles and facts.
    pub(super) fn lines(&self) -> Vec<(&str, String)> {
        let mut lines = vec![
            ("image", self.reference.clone()),
            ("digest", self.digest.clone()),
            ("container", self.container.clone()),
            ("created", self.created.clone()),
            ("written by", self.written_by.clone()),
            ("driver", self.driver_version.clone()),
        ];
        for (title, fact) in [
            ("kernel", &self.kernel),
            ("CRIU", &self.criu_version),
            ("subject", &self.subject),
        ] {
            lines.extend(fact.clone().map(|fact| (title, fact)));
        }
        for gpu in &self.gpus {
            let (held, total) = (size(gpu.memory_bytes), size(gpu.total_bytes));
            let (uuid, product) = (gpu.uuid, &gpu.product);
            lines.push(("GPU", format!("{uuid} ({product}), {held} of {total}")));
        }
        let processes = self.cuda_processes;
        lines.push(("processes", format!("{processes} with GPU state")));
        lines.push(("GPU memory", size(self.gpu_bytes)));
        let (blobs, bulk) = (self.blobs, size(self.bulk_bytes));
        lines.push(("bulk memory", format!("{bulk} in {blobs} blobs")));
        lines.push(("all of it", size(self.bytes)));
        let archive = if self.archive { "yes" } else { "no" };
        lines.push(("archive", archive.to_owned()));
        let said = self.annotations.iter();
        lines.extend(said.map(|(name, said)| ("says", format!("{name}={said}"))));
        lines
    }
}
