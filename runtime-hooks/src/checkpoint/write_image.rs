//! The image of a checkpoint: its manifest, the dump, and the step that makes it the image.

use std::path::Path;

use stasis_linux::ProcessRef;

use crate::bulk_memory::dump::MemoryDump;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::dump::{Dump, Dumped};
use crate::checkpoint::late_exec;
use crate::checkpoint::plan::Plan;
use crate::container::ContainerError;
use crate::error::Failure;
use crate::image::directory;
use crate::image::manifest::{Manifest, ManifestError};
use crate::operation::timeline::Timeline;
use crate::request::LowLevelArgs;

/// Writes the manifest, and lets the low-level runtime dump the process tree. `members` are the
/// processes whose GPU state is in their memory now.
pub(crate) fn write_image(
    plan: &Plan<'_>,
    captured: &mut Captured,
    members: &[ProcessRef],
    low_level_args: LowLevelArgs<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<Dumped, Failure> {
    let image = plan.image.path();
    let memory = MemoryDump::prepare(
        plan.context,
        plan.options,
        &plan.image,
        &plan.plugins,
        &plan.container,
        &plan.operation,
        timeline,
    )?;
    let snapshot = plan.container.snapshot();
    let snapshot = snapshot.map_err(ContainerError::Processes)?;
    captured.verify(&plan.container, members, &snapshot)?;
    for note in late_exec::refuse_or_note(plan.context, plan.options, &snapshot)? {
        timeline.note(note);
    }
    let manifest = &mut captured.manifest;
    manifest.memory = memory.record();
    manifest.phases = timeline.phases().to_vec();
    describe_image(manifest, image)?;
    let dump = Dump {
        context: plan.context,
        options: plan.options,
        container: &plan.container,
        image: &plan.image,
        memory: &memory,
        recorded: &manifest.processes,
        exec: &captured.exec,
    };
    let dumped = dump.run(low_level_args, timeline);
    let dumped = dumped.map_err(|not_dumped| dump.failure(not_dumped))?;
    dump.verify(&dumped)?;
    let stored = memory.succeeded(timeline);
    let is_unchanged = stored == manifest.memory;
    manifest.memory = stored;
    manifest.phases = timeline.phases().to_vec();
    match describe_image(manifest, image) {
        // The complete image restores without this update of the manifest, so this is no failure.
        Err(_) if is_unchanged => {}
        written => written?,
    }
    if manifest.memory.is_none() {
        memory.remove_unused();
    }
    if let Some(replaced) = plan.image.commit()? {
        timeline.note(directory::replaced(replaced));
    }
    Ok(dumped)
}

/// An image without GPU state and without bulk memory is an image that CRIU made alone.
fn describe_image(manifest: &Manifest, image: &Path) -> Result<(), ManifestError> {
    if manifest.has_gpu_state() || manifest.memory.is_some() {
        manifest.write(image)
    } else {
        Manifest::remove(image)
    }
}
