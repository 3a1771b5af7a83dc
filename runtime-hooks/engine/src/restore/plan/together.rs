//! The end of a restore that shares one outcome with others: no process of the container resumes
//! before all containers are restored.

use stasis_gpu::cuda::failure::JobError;
use stasis_gpu::cuda::process_set::bring_back;
use stasis_gpu::cuda::process_set::initial_state::InitialState;
use stasis_gpu::gpu_path::detached::Loaded;

use super::Plan;
use crate::companions::{Companions, Step};
use crate::container::{Container, ContainerError};
use crate::error::after_failure::AfterFailure;
use crate::error::{Error, Failure};
use crate::low_level::hook::pending::run_in_phase;
use crate::operation::timeline::Timeline;
use crate::recovery::shared::restore::resume_restored;
use crate::restore::gpu_state::{restore_locked, verify, verify_locked};
use crate::restore::hook::record;

/// The phase in which a container resumes.
const GO_ON: &str = "go on";

impl Plan<'_> {
    /// After CRIU: waits until it is done for all, gives the processes their GPUs, and waits until
    /// all have theirs. The driver answers nothing for a frozen process, so processes with GPU
    /// state are thawed meanwhile, and wait in their next call to CUDA.
    ///
    /// # Errors
    /// [`Failure`]: the container has to be removed.
    pub(super) fn wait_for_others(
        &self,
        companions: &dyn Companions,
        loaded: Option<Loaded>,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        let (context, id) = (self.context, &self.options.id);
        let container = Container::load(context.low_level.flavor, &context.root, id)?;
        // A container that our plugin holds is frozen already.
        container.cgroup().freeze()?;
        self.meet(companions, Step::Back, timeline)?;
        if let Some(gpus) = &self.admission.gpus {
            timeline.time("thaw", || container.cgroup().thaw())?;
            restore_locked(context, id, gpus, &self.manifest, loaded, timeline)?;
            verify_locked(context, &container)?;
            timeline.time("freeze", || container.cgroup().freeze())?;
            // Once all are restored, whichever process lets it go on tells its program so.
            record(context, &self.operation, &container, timeline)?;
        }
        self.operation.reservation().release();
        self.meet(companions, Step::Whole, timeline)
    }

    pub(in crate::restore) fn meet(
        &self,
        companions: &dyn Companions,
        step: Step,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        self.operation.stay_kept()?;
        companions.meet(step, &self.context.cancel, timeline)
    }

    /// All are restored: resumes the container, whatever happens to the others.
    ///
    /// # Errors
    /// [`Error`]: not all of its processes resume.
    pub(in crate::restore) fn resume_with_others(
        &self,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Error> {
        let failed = |cause, after_failure| {
            Error::ending(&self.operation, self.verb(), cause, after_failure)
        };
        let container = match self.context.container(&self.options.id) {
            Ok(Some(container)) => container,
            Ok(None) => return Err(failed(Failure::Unanswered, AfterFailure::Ended)),
            Err(error) => return Err(failed(Failure::Unanswered, AfterFailure::Unknown(error))),
        };
        let Err(cause) = timeline.time(GO_ON, || self.let_run(&container)) else {
            run_in_phase(&self.operation, &container, timeline);
            return Ok(());
        };
        let again = timeline.time(GO_ON, || {
            resume_restored(self.context, &self.operation, &container)
        });
        match again.tell(GO_ON, timeline) {
            AfterFailure::Unharmed(_) | AfterFailure::AsBefore(_) => Ok(()),
            other => Err(failed(cause, other)),
        }
    }

    fn let_run(&self, container: &Container) -> Result<(), Failure> {
        container.cgroup().thaw()?;
        if let Some(gpus) = &self.admission.gpus {
            let snapshot = container.snapshot();
            let snapshot = snapshot.map_err(ContainerError::Processes)?;
            let candidates = snapshot.candidates();
            let mut left = bring_back(&gpus.driver, candidates, &InitialState::default());
            if let Some(fault) = left.pop() {
                return Err(JobError { fault, lost: left }.into());
            }
        }
        verify(self.context, container)
    }
}
