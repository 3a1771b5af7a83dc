//! An image to be pushed, of which a restore would read every byte without complaint: its
//! directory, the directory into which an engine has put it beside its own files, or an engine's
//! archive of both.

use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::bulk_memory::restore::FoundMemory;
use stasis_engine::image::directory::{Opened, PARENT, open};
use stasis_engine::image::files::ImageFile;
use stasis_engine::image::manifest::Manifest;
use stasis_engine::restore::image::{self, ImageKind};
use stasis_memory_store::{
    INDEX_FILE, Index, LargeFile, PacksIn, Reader, is_pack_name, refuse_arriving,
};

use crate::archive::bundle::Listed;
use crate::archive::{CHECKPOINT, CONFIGURATION};
use crate::error::MoveError;
use crate::local::unpacked::Unpacked;

/// The image.
#[derive(Debug)]
pub(crate) struct Source {
    /// The user's name for it.
    pub(crate) named: PathBuf,
    /// The directory of the engine's files.
    pub(crate) engine: Option<PathBuf>,
    pub(crate) directory: PathBuf,
    pub(crate) manifest: Manifest,
    /// Files, as its manifest lists them.
    files: Vec<ImageFile>,
    pub(crate) memory: Option<Memory>,
    /// Keeps others from removing it meanwhile.
    _opened: Opened,
    /// Removed once it is pushed.
    _unpacked: Option<Unpacked>,
}

/// Its bulk memory.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) index: Index,
    pub(crate) reader: Reader,
    /// Keeps its packs as long as it lives; `None` if CRIU has all memory.
    _found: Option<FoundMemory>,
}

impl Source {
    /// Opens an image, and verifies CRIU's files. Bulk memory is verified as it is read.
    pub(crate) fn open(settings: &Settings, named: &Path) -> Result<Self, MoveError> {
        let unpacked = named.is_file().then(|| Unpacked::of(named)).transpose()?;
        let within = unpacked.as_ref().map_or(named, Unpacked::path);
        let is_engines = unpacked.is_some() || within.join(CONFIGURATION).is_file();
        let engine = is_engines.then(|| within.to_owned());
        let directory = match &engine {
            Some(engine) => engine.join(CHECKPOINT),
            None => within.to_owned(),
        };
        let image = Self::of_directory(settings, &directory)?;
        Ok(Self {
            named: named.to_owned(),
            engine,
            _unpacked: unpacked,
            ..image
        })
    }

    fn of_directory(settings: &Settings, directory: &Path) -> Result<Self, MoveError> {
        refuse_arriving(directory)?;
        let opened = open(settings, directory).map_err(MoveError::refused)?;
        let directory = &opened.path().to_owned();
        if directory.join(PARENT).symlink_metadata().is_ok() {
            return Err(MoveError::Parent(directory.to_owned()));
        }
        let unlisted = || MoveError::Unlisted(directory.to_owned());
        let manifest = match image::find(directory).map_err(MoveError::refused)? {
            ImageKind::Image(manifest) => *manifest,
            ImageKind::Plain => return Err(unlisted()),
            ImageKind::Nothing => return Err(MoveError::Nothing(directory.to_owned())),
        };
        let files = manifest.files.clone().ok_or_else(unlisted)?;
        image::verify(settings, directory, &manifest).map_err(MoveError::refused)?;
        Ok(Self {
            memory: Memory::open(settings, directory, &manifest)?,
            directory: directory.to_owned(),
            manifest,
            files,
            named: directory.to_owned(),
            engine: None,
            _opened: opened,
            _unpacked: None,
        })
    }

    /// Returns CRIU's files, and any others that are not bulk memory.
    pub(crate) fn of_criu(&self) -> impl Iterator<Item = &ImageFile> {
        self.files.iter().filter(|file| is_of_criu(file))
    }
}

impl Memory {
    fn open(
        settings: &Settings,
        directory: &Path,
        manifest: &Manifest,
    ) -> Result<Option<Self>, MoveError> {
        let found = FoundMemory::find(settings, directory, manifest, Ok(()));
        if let Some(found) = found.map_err(MoveError::refused)? {
            let index = found.index().clone();
            let reader = Reader::open(directory, &index, found.store())?;
            return Ok(Some(Self {
                index,
                reader,
                _found: Some(found),
            }));
        }
        // CRIU has all memory, according to the index.
        let Some(mut index) = Index::read(directory)? else {
            return Ok(None);
        };
        index.packs_in = PacksIn::Image;
        index.packs.clear();
        let reader = Reader::open(directory, &index, None)?;
        Ok(Some(Self {
            index,
            reader,
            _found: None,
        }))
    }
}

/// Returns whether a file of an image travels as it is.
pub(crate) fn is_of_criu(file: &ImageFile) -> bool {
    file.name != INDEX_FILE && !is_pack_name(&file.name)
}

/// Splits CRIU's files, which are in their order, into large ones and others, by `is_large` of each
/// and its number, from 1 on.
pub(crate) fn split<'f>(
    files: impl Iterator<Item = &'f ImageFile>,
    is_large: impl Fn(i32, &ImageFile) -> bool,
) -> (Vec<LargeFile<'f>>, Vec<Listed<'f>>) {
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for (number, file) in (1..).zip(files) {
        match is_large(number, file) {
            true => large.push(LargeFile {
                number,
                name: &file.name,
                bytes: file.bytes,
            }),
            false => small.push(Listed {
                name: &file.name,
                bytes: file.bytes,
            }),
        }
    }
    (large, small)
}
