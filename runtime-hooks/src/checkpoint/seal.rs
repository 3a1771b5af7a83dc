//! What makes CRIU's files an image that may be reported good. The container has ended by then, or
//! goes on: nothing here may keep it from that.

use std::path::Path;

use stasis_linux::file_system::FileSystem;
use stasis_linux::procfs::{cpu_flags, instruction_sets};

use crate::bulk_memory::dump::MemoryDump;
use crate::container::Container;
use crate::context::Context;
use crate::error::Failure;
use crate::error::after_failure::AfterFailure;
use crate::host::disk;
use crate::image::directory::NewImage;
use crate::image::files;
use crate::image::manifest::{MadeOn, Manifest, ManifestError};
use crate::image::shared_memory;
use crate::low_level::criu_version::CriuVersion;
use crate::operation::timeline::Timeline;
use crate::preflight::capabilities::kernel_release;

/// Describes the image of a dump as it has become, brings it to disk, and lets it take the place of
/// an earlier one.
///
/// # Errors
/// [`Failure`]: the image must not be reported good.
pub(crate) fn seal(
    context: &Context,
    image: &NewImage,
    manifest: &mut Manifest,
    memory: &mut MemoryDump<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    if let Some(stored) = memory.store_staged(timeline)? {
        manifest.memory = Some(stored);
    }
    let has_files = image.path().join(shared_memory::FILE_NAME).exists();
    if manifest.has_gpu_state() || has_files {
        let threads = context.settings.gpu_contents.threads_on_disk();
        let files = timeline.time("hash", || files::list(image.path(), threads))?;
        manifest.files = Some(files);
        manifest.made_on = Some(this_machine());
    }
    manifest.phases = timeline.phases().to_vec();
    describe(manifest, image.path())?;
    image.has_contents()?;
    let limit = context.settings.deadlines.stalled();
    let sync = |system: &FileSystem| disk::sync(system, limit);
    Ok(timeline.time("sync", || image.commit(memory.store(), sync))?)
}

/// After a failure to seal an image. That of a container that has ended stays, since it is the last
/// copy, and the container's state is returned; any other goes, if it can be removed.
pub(crate) fn unsealed(
    cause: &Failure,
    image: &NewImage,
    memory: &MemoryDump<'_>,
    container: &Container,
) -> Option<AfterFailure> {
    if cause.is_of_a_disk_that_hangs() {
        // Whoever touches it waits as well. The next checkpoint in the directory sees to the rest.
        if !container.init().is_gone() {
            return None;
        }
        return Some(AfterFailure::EndedNotOnDisk(image.directory().to_owned()));
    }
    let is_last_copy = image.is_last_copy(container.init());
    if !is_last_copy {
        if memory.is_stored_alone() {
            image.keep_memory_only();
            return None;
        }
        memory.remove_unused();
    }
    image.give_up(container.init());
    is_last_copy.then(|| AfterFailure::EndedNotOnDisk(image.directory().to_owned()))
}

/// An image without GPU state and files of ours is an image that CRIU made alone.
///
/// # Errors
/// [`ManifestError`].
pub(crate) fn describe(manifest: &Manifest, image: &Path) -> Result<(), ManifestError> {
    if manifest.has_gpu_state() || manifest.has_shared_memory() {
        manifest.write(image)
    } else {
        Manifest::remove(image)
    }
}

/// What cannot be found out is left out.
fn this_machine() -> MadeOn {
    let criu = CriuVersion::installed();
    MadeOn {
        kernel: kernel_release(),
        criu: criu.ok().flatten().map(|version| version.to_string()),
        cpu: instruction_sets(cpu_flags().unwrap_or_default()),
    }
}
