//! The goals of a restore by itself: a container that runs, or that waits for its start.

use stasis_gpu::gpu_path::detached::Loaded;

use super::Plan;
use crate::error::Failure;
use crate::operation::awaited_start::AwaitedStart;
use crate::operation::timeline::Timeline;
use crate::restore::gpu_state::{restore_gpu_state, verify};
use crate::restore::hook::tell_program;

impl Plan<'_> {
    /// Records that the container waits for its start, if it is held.
    pub(super) fn leave_to_start(&self) -> Result<(), Failure> {
        let container = self.context.container(&self.options.id)?;
        if let Some(hold) = &self.hold {
            hold.succeeded(container.as_ref(), &self.options.bundle)?;
        }
        let image = &self.options.image_path;
        let awaited = AwaitedStart {
            image: image.clone(),
            bundle: self.options.bundle.clone(),
            manifest: match self.manifest.has_gpu_state() {
                true => Some(self.manifest.identity()),
                false => None,
            },
        };
        Ok(self.operation.await_start(&awaited)?)
    }

    /// Gives the processes their GPUs, and unlocks them.
    pub(super) fn restore_gpu_state(
        &self,
        loaded: Option<Loaded>,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        let id = &self.options.id;
        if let Some(gpus) = &self.admission.gpus {
            restore_gpu_state(self.context, id, gpus, &self.manifest, loaded, timeline)?;
        }
        self.operation.reservation().release();
        if let Some(container) = self.context.container(id)? {
            verify(self.context, &container)?;
        }
        if self.admission.gpus.is_some() {
            tell_program(self.context, &self.operation, id, timeline);
        }
        Ok(())
    }
}
