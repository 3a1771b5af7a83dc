//! `stasis.json`: the content of an image directory beside CRIU's own files.
//!
//! A flat file, since containerd's CRI plugin unpacks images without making directories. A restore
//! does not trust it: it is size-limited, versioned, and nothing in it names a path, a device or
//! anything else that the new container would be given. Its presence means "this image has GPU
//! state, or files that CRIU has not written, or a new container may begin with it"; any other
//! image is plain, without it.

mod error;
mod made_on;
mod shared;

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stasis_gpu::cuda::gpu_use::{CudaProcess, GpuUse, gpu_bytes};
use stasis_gpu::cuda::nvml::Gpu;
use stasis_linux::file::{self, Access, Durability};
use stasis_memory_store::{ImageId, PacksIn};

use crate::image::files::{ImageFile, check_list};
use crate::operation::timeline::Phase;

pub use error::ManifestError;
pub use made_on::MadeOn;
pub use shared::SharedAllocation;

/// The file's name in an image directory.
pub const FILE_NAME: &str = "stasis.json";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 7;
/// [`MAX_PROCESSES`] fit, each with eight GPUs: about 750 bytes for one; and as many files as an
/// image has, each with 130 bytes.
const MAX_BYTES: u64 = 96 << 20;
/// More than any machine has.
const MAX_GPUS: usize = 256;
/// Half of what a machine has pids for by default (kernel.pid_max).
const MAX_PROCESSES: usize = 1 << 14;
/// More than an operation has.
const MAX_PHASES: usize = 64;

/// The manifest of one checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    version: u32,
    /// The program that wrote it, for people.
    pub written_by: String,
    /// When it was written, RFC 3339.
    pub created: String,
    /// The container's id at checkpoint, for people: a restore may give another.
    pub container: String,
    /// The driver that saved the GPU state.
    pub driver_version: String,
    /// The GPUs of the machine, in its order: those that the processes used, and those that the
    /// driver may have recorded for them as well.
    pub gpus: Vec<Gpu>,
    /// Every process with GPU state in the image.
    pub processes: Vec<CudaProcess>,
    /// The GPU memory that processes share: each import was given up before the checkpoint, and is
    /// made again before any of them goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedAllocation>,
    /// The phases that had passed when the manifest was written.
    pub phases: Vec<Phase>,
    /// Bulk memory that is not in CRIU's own files, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<StoredMemory>,
    /// The files of the image that a restore reads; none before CRIU has written them. A checkpoint
    /// that was cut off leaves none, and its image may be the last copy of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<ImageFile>>,
    /// The machine; none before CRIU has written its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_on: Option<MadeOn>,
}

/// Bulk memory that is not in CRIU's own files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredMemory {
    /// Its name: index and packs have the same.
    pub image_id: ImageId,
    /// The place of its packs: in the image, or apart from it.
    pub packs_in: PacksIn,
}

/// The field that every version has.
#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

impl Manifest {
    /// Makes a manifest without processes, GPUs and phases.
    #[must_use]
    pub fn new(container: &str, created: String, driver_version: String) -> Self {
        Self {
            version: VERSION,
            written_by: concat!("stasis ", env!("CARGO_PKG_VERSION")).to_owned(),
            created,
            container: container.to_owned(),
            driver_version,
            gpus: Vec::new(),
            processes: Vec::new(),
            shared: Vec::new(),
            phases: Vec::new(),
            memory: None,
            files: None,
            made_on: None,
        }
    }

    /// Makes the manifest of a plain image, which has none.
    #[must_use]
    pub fn implied(container: &str) -> Self {
        Self {
            written_by: String::new(),
            ..Self::new(container, String::new(), String::new())
        }
    }

    /// Returns the version of its format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether the image has GPU state, which a restore gives back to a process.
    pub(crate) fn has_gpu_state(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Returns the bytes of all GPU memory that the image holds.
    pub fn gpu_bytes(&self) -> u64 {
        gpu_bytes(&self.processes)
    }

    /// Returns the id of bulk memory that lies apart from the image. An image that was pulled has
    /// the id of the one that was pushed, whose contents apart are not its own.
    pub fn contents_apart(&self) -> Option<ImageId> {
        let memory = self.memory.as_ref();
        let apart = memory.filter(|memory| memory.packs_in == PacksIn::Directory);
        apart.map(|memory| memory.image_id)
    }

    /// Returns the GPUs that the processes were on, in the machine's order.
    pub fn used_gpus(&self) -> Vec<Gpu> {
        let uses = || self.processes.iter().flat_map(|process| &process.gpus);
        let used = |gpu: &&Gpu| uses().any(|each| each.uuid == gpu.uuid);
        self.gpus.iter().filter(used).cloned().collect()
    }

    /// Returns a hash of its content.
    pub(crate) fn identity(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        blake3::hash(&text).to_string()
    }

    /// Writes the manifest into an image directory, whole or not at all. The manifest is on disk
    /// once the image is.
    ///
    /// # Errors
    /// [`ManifestError::Io`]; also if [`Manifest::read`] would refuse the manifest, so that the
    /// checkpoint fails and not the restore.
    pub fn write(&self, image_directory: &Path) -> Result<(), ManifestError> {
        let path = image_directory.join(FILE_NAME);
        let text = match self.to_text() {
            Ok(text) => text,
            Err(what) => return Err(ManifestError::Unreadable { path, what }),
        };
        let replaced = file::replace(&path, &text, Access::Private, Durability::Volatile);
        replaced.map_err(|source| ManifestError::Io {
            action: "write",
            path,
            source,
        })
    }

    /// Returns its text, if [`Self::from_text`] would read it.
    ///
    /// # Errors
    /// The reason why it would not.
    pub fn to_text(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        let mut text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        text.push(b'\n');
        let fits = file::check_size(text.len() as u64, MAX_BYTES);
        fits.map(|()| text).map_err(|error| error.to_string())
    }

    /// Reads the manifest of an image directory. `None`: a plain image without GPU state.
    ///
    /// # Errors
    /// [`ManifestError`] for anything that this version did not write.
    pub fn read(image_directory: &Path) -> Result<Option<Self>, ManifestError> {
        let path = image_directory.join(FILE_NAME);
        let text = file::read(&path, MAX_BYTES).map_err(|source| ManifestError::Io {
            action: "read",
            path: path.clone(),
            source,
        })?;
        text.map(|text| Self::from_text(&path, &text)).transpose()
    }

    /// Reads the text of a manifest; the path is for messages.
    pub fn from_text(path: &Path, text: &[u8]) -> Result<Self, ManifestError> {
        let malformed = |what: String| ManifestError::Malformed {
            path: path.to_owned(),
            what,
        };
        let AnyVersion { version } =
            serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
        if version != VERSION {
            return Err(ManifestError::Version {
                path: path.to_owned(),
                found: version,
            });
        }
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
        manifest.check().map_err(malformed)?;
        Ok(manifest)
    }

    /// Checks the rules that the types do not express.
    fn check(&self) -> Result<(), String> {
        self.made_on.as_ref().map_or(Ok(()), MadeOn::check)?;
        if self.processes.len() > MAX_PROCESSES || self.phases.len() > MAX_PHASES {
            return Err("it lists more processes or phases than there can be".to_owned());
        }
        check_list(self.files.as_deref().unwrap_or_default())?;
        let mut listed = BTreeSet::new();
        if self.gpus.len() > MAX_GPUS || !self.gpus.iter().all(|gpu| listed.insert(gpu.uuid)) {
            return Err("it lists a GPU twice, or more than a machine has".to_owned());
        }
        let mut pids = BTreeSet::new();
        for process in &self.processes {
            if process.pid < 1 || !pids.insert(process.pid) {
                return Err(format!("pid {} is impossible or listed twice", process.pid));
            }
            let mut used = BTreeSet::new();
            for GpuUse { uuid, .. } in &process.gpus {
                if !listed.contains(uuid) || !used.insert(*uuid) {
                    let pid = process.pid;
                    return Err(format!(
                        "process {pid} uses {uuid} twice, or it is unlisted"
                    ));
                }
            }
        }
        shared::check(&self.shared, &pids)
    }
}

/// The fuzz target `manifest`: an accepted manifest is accepted again once it is written.
#[cfg(fuzzing)]
#[allow(clippy::expect_used)]
pub fn fuzz(text: &[u8]) {
    let path = Path::new("fuzzed");
    let Ok(mut manifest) = Manifest::from_text(path, text) else {
        return;
    };
    // The phases' seconds are rounded as they are read.
    manifest.phases.clear();
    let written = manifest.to_text().expect("no longer than what was read");
    let again = Manifest::from_text(path, &written).expect("what was written is accepted");
    assert_eq!(again, manifest);
}

#[cfg(test)]
mod tests;
