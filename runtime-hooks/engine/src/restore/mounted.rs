//! The files that an image carries of directories that its container had mounted: they are put into
//! the new container's directories before CRIU opens them.

use std::io;
use std::path::{Path, PathBuf};

use crate::container::mounted::{self, Files, Mounted};
use crate::container::spec::Spec;
use crate::error::{Failure, Refusal};
use crate::image::mounted::{MountedFiles, archive_name, clear, load};
use crate::image::not_kept::NotKept;
use crate::request::RestoreRequest;

/// Archives that are to be unpacked.
#[derive(Debug, Default)]
pub(crate) struct CarriedFiles {
    /// Each archive with its directory, which is empty.
    archives: Vec<(PathBuf, PathBuf)>,
    /// Notes, for people, on files that the new container still lacks.
    pub(crate) notes: Vec<String>,
}

impl CarriedFiles {
    /// Finds the archives. Files that the engine itself has put into a directory stay as they are.
    ///
    /// # Errors
    /// [`Refusal::Directory`]: there is no place for the files.
    pub(crate) fn of(options: &RestoreRequest) -> Result<Self, Refusal> {
        let (image, bundle) = (&options.image_path, &options.bundle);
        // Unreadable data is reported when CRIU has restored the processes.
        let not_kept = NotKept::read(image).ok().flatten();
        let had = not_kept.map_or_else(Vec::new, |it| it.mounted);
        // The low-level runtime reports a specification that cannot be read.
        let has = Spec::read(bundle).map_or_else(|_| Vec::new(), |spec| mounted::all(&spec));
        let mut carried = Self::default();
        for had in &had {
            match (had.archive, at_its_place(had, &has)) {
                (Some(number), Some(has)) if has.files == Files::End => {
                    let is_empty = has.is_empty().map_err(refused(has.source.clone()))?;
                    let archive = image.join(archive_name(number));
                    let to = is_empty.then(|| (archive, has.source.clone()));
                    carried.archives.extend(to);
                }
                (Some(_), _) => return Err(no_place(had, bundle)),
                (None, _) => carried.notes.extend(lacks(had, &has)),
            }
        }
        Ok(carried)
    }

    /// Unpacks the archives.
    pub(crate) fn load(&self) -> Result<(), Failure> {
        for (archive, directory) in &self.archives {
            load(archive, directory).map_err(refused(directory.clone()))?;
        }
        Ok(())
    }

    /// Removes the files: a container that is started cold must not find them.
    pub(crate) fn clear(&self) {
        for (_, directory) in &self.archives {
            // The engine unmounts a directory that cannot be cleared.
            let _ = clear(directory);
        }
    }
}

fn at_its_place<'m>(had: &MountedFiles, has: &'m [Mounted]) -> Option<&'m Mounted> {
    has.iter().find(|has| has.destination == had.destination)
}

/// Files on a disk of one host are not on another host's, nor in a new volume.
pub fn lacks(had: &MountedFiles, has: &[Mounted]) -> Option<String> {
    let has = at_its_place(had, has).filter(|_| had.archive.is_none())?;
    has.is_empty().is_ok_and(|is_empty| is_empty).then(|| {
        format!(
            "{} had files when the image was made, and {}, which is mounted there now, has none: \
             the processes do not find them again",
            had.destination.display(),
            has.source.display()
        )
    })
}

fn no_place(had: &MountedFiles, bundle: &Path) -> Refusal {
    let what = format!(
        "the image carries the files of its {}, and the engine has mounted no tmpfs there that is \
         this container's own",
        had.destination.display()
    );
    refused(bundle.to_owned())(io::Error::other(what))
}

fn refused(path: PathBuf) -> impl FnOnce(io::Error) -> Refusal {
    let what = "the new container's directories for the files of the image, in";
    |source| Refusal::Directory { what, path, source }
}
