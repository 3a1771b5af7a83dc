//! Completes CRIU's files to an image that may be reported good. By then the container has ended,
//! or goes on: no failure here may prevent that.

use std::path::Path;

use stasis_host::disk;
use stasis_linux::file_system::FileSystem;
use stasis_linux::procfs::{cpu_flags, instruction_sets};

use crate::bulk_memory::dump::MemoryDump;
use crate::container::Container;
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::error::{Failure, chain};
use crate::image::directory::{Committed, NewImage};
use crate::image::files::{self, FileError};
use crate::image::manifest::{MadeOn, Manifest, ManifestError};
use crate::image::mounted::carries_files;
use crate::low_level::criu_program::CriuProgram;
use crate::operation::timeline::Timeline;
use crate::preflight::capabilities::kernel_release;

/// Whether a manifest lists the files of an image, as decided before its dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// It does.
    Begun,
    /// Only if the container made files, until it stood still, that its image has to carry.
    IfItCarriesFiles,
}

impl Listing {
    fn is_needed(self, image: &Path) -> Result<bool, FileError> {
        match self {
            Self::Begun => Ok(true),
            Self::IfItCarriesFiles => carries_files(image),
        }
    }
}

/// Lists the files of a dump whose image is not the low-level runtime's alone, brings it to disk,
/// and moves it to the place of an earlier image.
///
/// # Errors
/// [`Failure`]: the image must not be reported good.
pub(crate) fn seal(
    context: &Context,
    image: &NewImage,
    manifest: &mut Manifest,
    listing: Listing,
    memory: &mut MemoryDump<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    if let Some(stored) = memory.store_staged(timeline)? {
        manifest.memory = Some(stored);
    }
    if listing.is_needed(image.path())? {
        let threads = context.settings.gpu_contents.threads_on_disk();
        let files = timeline.time("hash", || files::list(image.path(), threads))?;
        manifest.files = Some(files);
        manifest.phases = timeline.phases().to_vec();
        describe(manifest, image.path())?;
    }
    let limit = context.settings.deadlines.stalled();
    let sync = |system: &FileSystem| disk::sync(system, limit);
    let committed = timeline.time("sync", || image.commit(memory.store(), sync))?;
    tell(&committed, timeline);
    Ok(())
}

/// Notes why a complete image is not in its place yet.
pub(crate) fn tell(committed: &Committed, timeline: &mut Timeline<'_>) {
    if let Committed(Some(error)) = committed {
        timeline.note(format!(
            "the image is complete, and the next who opens its directory moves it up there: {}",
            chain(error)
        ));
    }
}

/// After a failure to seal an image: keeps the image of a container that has ended, since it is the
/// last copy, and returns the container's state; removes any other image, if it can.
pub(crate) fn unsealed(
    cause: &Failure,
    image: &NewImage,
    memory: &mut MemoryDump<'_>,
    container: &Container,
) -> Option<AfterFailure> {
    let init = container.init();
    if cause.is_of_a_disk_that_hangs() {
        // Any access to that disk hangs as well. The next checkpoint in the directory cleans up.
        let stays = || AfterFailure::EndedNotOnDisk(image.path().to_owned());
        return init.is_gone().then(stays);
    }
    memory.disown_staged();
    if !image.is_last_copy(init) {
        if memory.is_stored_alone() {
            image.disown();
            return None;
        }
        memory.remove_unused();
    }
    image.give_up(init).map(AfterFailure::EndedNotOnDisk)
}

/// Writes the manifest. It is written before the dump as well, without files: if the operation is
/// killed, it shows that the image has to be sealed.
pub(crate) fn describe(manifest: &mut Manifest, image: &Path) -> Result<(), ManifestError> {
    manifest.made_on.get_or_insert_with(this_machine);
    manifest.write(image)
}

/// Leaves out facts that cannot be found out.
fn this_machine() -> MadeOn {
    let criu = CriuProgram::installed().and_then(|criu| criu.version.ok());
    MadeOn {
        kernel: kernel_release(),
        criu: criu.map(|version| version.to_string()),
        cpu: instruction_sets(cpu_flags().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_cannot_be_read_is_not_taken_for_one_without_a_list() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path();
        let needed = |listing: Listing| listing.is_needed(image).ok();
        assert_eq!(needed(Listing::IfItCarriesFiles), Some(false));
        std::fs::write(image.join("stasis-mounted-0.tar.img"), "").unwrap();
        assert_eq!(needed(Listing::IfItCarriesFiles), Some(true));
        let gone = image.join("gone");
        assert!(Listing::Begun.is_needed(&gone).unwrap());
        Listing::IfItCarriesFiles.is_needed(&gone).unwrap_err();
    }
}
