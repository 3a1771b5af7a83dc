//! A directory with blobs and the manifests that name them: an OCI layout, as `skopeo copy` reads
//! and writes it, on a disk or a file system of several machines (NFS).
//!
//! Blobs get their names when they are complete, and manifests their tags when all their blobs
//! exist. Several processes may push at the same time: only changes of `index.json` are exclusive.

mod blob;
mod blob_directory;

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use serde::Deserialize;
use stasis_linux::file::{self, Access, Durability};
use stasis_oci_image::digest::Hashed;
use stasis_oci_image::document::index::LayoutIndex;
use stasis_oci_image::document::manifest::{ARTIFACT, MANIFEST, MOST_MANIFEST_BYTES, Manifest};
use stasis_oci_image::document::parse;
use stasis_oci_image::{Descriptor, Digest, OciImageError};

use crate::places::{Elsewhere, NewBlob, Stored};
use blob::LayoutBlob;
use blob_directory::BlobDirectory;

const MARK: &str = "oci-layout";
const VERSION: &str = "1.0.0";
const INDEX: &str = "index.json";
/// Held by the process that changes the index.
const LOCK: &str = ".stasis-lock";
/// More than a layout of ten thousand images has.
const MOST_INDEX_BYTES: u64 = 16 << 20;
const MOST_MARK_BYTES: u64 = 1 << 10;

/// A layout.
#[derive(Debug)]
pub(crate) struct Layout {
    path: PathBuf,
    blobs: BlobDirectory,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    image_layout_version: String,
}

impl Layout {
    /// Opens a layout.
    pub(crate) fn open(path: &Path) -> Result<Self, OciImageError> {
        let no_layout = |what: String| OciImageError::NoLayout {
            path: path.to_owned(),
            what,
        };
        let mark = path.join(MARK);
        let text = file::read(&mark, MOST_MARK_BYTES).map_err(OciImageError::io("read", &mark))?;
        let text = text.ok_or_else(|| no_layout(format!("it has no {MARK}")))?;
        let mark: Mark = parse(&text).map_err(no_layout)?;
        if mark.image_layout_version != VERSION {
            let version = mark.image_layout_version;
            return Err(no_layout(format!(
                "it has version {version:?}, and not {VERSION}"
            )));
        }
        let path = path.to_owned();
        let blobs = BlobDirectory::open(&path.join("blobs").join("sha256"))?;
        Ok(Self { path, blobs })
    }

    /// Opens a layout, or makes it in a directory that is empty or does not exist.
    pub(crate) fn open_or_make(path: &Path) -> Result<Self, OciImageError> {
        if !path.join(MARK).exists() {
            make(path)?;
        }
        Self::open(path)
    }

    fn read_manifest(&self, descriptor: &Descriptor) -> Result<Manifest, OciImageError> {
        let digest = descriptor.digest;
        if descriptor.media_type != MANIFEST {
            let what = format!("it is a {:?}, and not a manifest", descriptor.media_type);
            return Err(OciImageError::document(digest.to_string(), what));
        }
        let text = self.read(descriptor, MOST_MANIFEST_BYTES)?;
        Manifest::from_text(&text, &digest.to_string())
    }

    /// Looks a tag or digest up in the index.
    fn find(&self, tag: &str) -> Result<Descriptor, OciImageError> {
        let index = self.index()?;
        let found = match tag.parse() {
            Ok(digest) => index.with_digest(&digest),
            Err(_) => index.tagged(tag),
        };
        found.ok_or_else(|| OciImageError::NoTag {
            place: self.name(),
            tag: tag.to_owned(),
        })
    }

    /// Returns whether a blob of this name and length exists. Does not read it.
    fn has(&self, digest: &Digest, bytes: u64) -> bool {
        let opened = self.blobs.open_file(&digest.hex());
        let found = opened.ok().flatten().and_then(|file| file.metadata().ok());
        found.is_some_and(|found| found.len() == bytes)
    }

    fn open_blob(&self, blob: &Descriptor) -> Result<File, OciImageError> {
        let path = self.path_of(&blob.digest);
        let opened = self.blobs.open_file(&blob.digest.hex());
        let opened = opened.map_err(OciImageError::io("open", &path))?;
        let opened = opened.ok_or_else(|| OciImageError::NoBlob {
            place: self.name(),
            digest: blob.digest,
        })?;
        let found = opened
            .metadata()
            .map_err(OciImageError::io("read", &path))?
            .len();
        if found != blob.size {
            let what = format!("it has {found} bytes, and should have {}", blob.size);
            return Err(OciImageError::blob(blob.digest, what));
        }
        Ok(opened)
    }

    fn index(&self) -> Result<LayoutIndex, OciImageError> {
        let path = self.path.join(INDEX);
        let text = file::read(&path, MOST_INDEX_BYTES);
        match text.map_err(OciImageError::io("read", &path))? {
            None => Ok(LayoutIndex::empty()),
            Some(text) => LayoutIndex::from_text(&text)
                .map_err(|what| OciImageError::document(path.display().to_string(), what)),
        }
    }

    fn write_index(&self, index: &LayoutIndex) -> Result<(), OciImageError> {
        let path = self.path.join(INDEX);
        let text = index.to_text();
        let written = file::check_size(text.len() as u64, MOST_INDEX_BYTES)
            .and_then(|()| file::replace(&path, &text, Access::Public, Durability::Durable));
        written.map_err(OciImageError::io("write", &path))
    }

    /// Waits for other processes that change the index, which takes a moment. A lock over NFS needs
    /// a file that is open for writing (flock(2)).
    fn lock(&self) -> io::Result<File> {
        let lock = BlobDirectory::open_own(&self.path, LOCK)?;
        retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))?;
        Ok(lock)
    }

    fn path_of(&self, digest: &Digest) -> PathBuf {
        self.path.join("blobs").join("sha256").join(digest.hex())
    }
}

impl Elsewhere for Layout {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn manifest(&self, tag: &str) -> Result<(Manifest, Digest), OciImageError> {
        let found = self.find(tag)?;
        Ok((self.read_manifest(&found)?, found.digest))
    }

    fn describe(&self, tag: &str) -> Result<Descriptor, OciImageError> {
        let found = self.find(tag)?;
        Ok(Descriptor::new(&found.media_type, found.digest, found.size))
    }

    /// Returns the newest first.
    fn images(&self, _: &str, most: usize) -> Result<Vec<Manifest>, OciImageError> {
        let index = self.index()?;
        // Other programs that copy images leave the type out.
        let is_artifact = |one: &Descriptor| {
            let named = one.artifact_type.as_deref();
            named.is_none_or(|named| named == ARTIFACT)
        };
        let is_ours = |one: &Descriptor| one.media_type == MANIFEST && is_artifact(one);
        let ours = index.manifests().filter(is_ours).take(most);
        Ok(ours
            .filter_map(|one| self.read_manifest(&one).ok())
            .collect())
    }

    fn expect(&self, image: &Manifest) -> Result<(), OciImageError> {
        image
            .blobs()
            .try_for_each(|blob| self.open_blob(blob).map(drop))
    }

    fn still_has(&self, digest: &Digest, bytes: u64) -> bool {
        let Ok(blob) = self.open_blob(&Descriptor::new("", *digest, bytes)) else {
            return false;
        };
        let mut hashed = Hashed::new(blob.take(bytes));
        io::copy(&mut hashed, &mut io::sink()).is_ok() && hashed.end().0 == *digest
    }

    fn reader(&self, blob: &Descriptor, at: u64) -> Result<Box<dyn Read + '_>, OciImageError> {
        let mut file = self.open_blob(blob)?;
        let at = at.min(blob.size);
        let sought = file.seek(SeekFrom::Start(at));
        sought.map_err(OciImageError::io("read", &self.path_of(&blob.digest)))?;
        // The file may grow while it is read.
        Ok(Box::new(file.take(blob.size - at)))
    }

    fn new_blob(&self) -> Result<Box<dyn NewBlob + '_>, OciImageError> {
        Ok(Box::new(LayoutBlob::begin(self)?))
    }

    fn put(&self, bytes: &[u8]) -> Result<Stored, OciImageError> {
        let mut blob = self.new_blob()?;
        let written = blob.write_all(bytes);
        written.map_err(OciImageError::io("write a blob in", &self.blobs.path))?;
        blob.finish()
    }

    fn tag(&self, tag: &str, manifest: &Manifest) -> Result<Digest, OciImageError> {
        let text = manifest.to_text()?;
        let Stored { digest, bytes, .. } = self.put(&text)?;
        self.blobs
            .sync()
            .map_err(OciImageError::io("sync", &self.path))?;
        let _lock = self.lock().map_err(OciImageError::io("lock", &self.path))?;
        let mut index = self.index()?;
        let mut descriptor = Descriptor::new(MANIFEST, digest, bytes);
        descriptor.artifact_type = Some(ARTIFACT.to_owned());
        index.tag(tag, descriptor);
        self.write_index(&index)?;
        Ok(digest)
    }
}

fn make(path: &Path) -> Result<(), OciImageError> {
    let blobs = path.join("blobs").join("sha256");
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(OciImageError::io("make", path))?;
    let mut entries = fs::read_dir(path).map_err(OciImageError::io("read", path))?;
    let mark = path.join(MARK);
    let staged = file::staged(&mark).map_err(OciImageError::io("make", path))?;
    // A push that was cut off here may have left these two, which are no obstacle.
    let is_other = |entry: io::Result<fs::DirEntry>| {
        entry.map_or(true, |entry| {
            entry.file_name() != "blobs" && entry.path() != staged
        })
    };
    if entries.any(is_other) {
        return Err(OciImageError::NoLayout {
            path: path.to_owned(),
            what: format!("it has files and no {MARK}; name an empty directory or a layout"),
        });
    }
    let made = DirBuilder::new().recursive(true).mode(0o755).create(&blobs);
    made.map_err(OciImageError::io("make", &blobs))?;
    let text = format!("{{\"imageLayoutVersion\":\"{VERSION}\"}}");
    let written = file::replace(&mark, text.as_bytes(), Access::Public, Durability::Durable);
    written.map_err(OciImageError::io("write", &mark))
}

#[cfg(test)]
mod tests;
