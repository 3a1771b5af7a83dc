//! The state of a container that uses a GPU, in its operators' terms.

use stasis_config::Settings;
use stasis_engine::operation::progress::UnderWay;
use stasis_engine::operation::undo::{Begun, Undo};
use stasis_engine::operation::{Intent, directory_of, peek};
use stasis_engine::recovery::waiting::all_can_answer;
use stasis_gpu::cuda::CudaState;
use stasis_linux::cgroup::FreezerState;
use stasis_locate::Located;

stasis_config::words! {
    /// The state of a container that uses a GPU.
    ContainerState {
        /// It may use its GPUs.
        Running = "running",
        /// Its CUDA calls block; its GPU contents are on its GPUs.
        Locked = "locked",
        /// Its GPU contents are in host memory, and its GPUs are free.
        Suspended = "suspended",
        /// Its processes are frozen.
        Paused = "paused",
        Checkpointing = "checkpointing",
        Restoring = "restoring",
        Resuming = "resuming",
        /// The operator's `stasis suspend` or `resume` is at work.
        Suspending = "suspending",
        /// An operation was killed or has failed, and is undone.
        Recovering = "recovering",
        /// An operation was killed, and no keeper undoes it: `stasis recover`.
        CutOff = "cut-off",
        /// Its GPU contents go back as soon as its GPUs have room.
        WaitingForRoom = "waiting-for-room",
        /// Its GPU contents go back as soon as all its processes answer the driver.
        WaitingForAnswers = "waiting-for-answers",
        /// The driver has lost a process: it has to be killed.
        Failed = "failed",
        /// Its processes are in different states.
        Mixed = "mixed",
        /// It cannot be inspected.
        Unknown = "unknown",
    }
}

/// The records of operations on a container.
pub(crate) struct Recorded {
    /// The operation that is under way.
    pub(crate) under_way: Option<UnderWay>,
    pub(crate) undo: Option<Undo>,
    /// Whether no keeper undoes it.
    is_cut_off: bool,
    /// The record of what its processes held on GPUs.
    pub(super) intent: Option<Intent>,
}

impl Recorded {
    /// Reads the records. An unreadable one counts as absent: it may just be written or removed.
    pub(crate) fn of(settings: &Settings, located: &Located) -> Self {
        let (state_dir, id) = (&settings.paths.state_dir, located.container.id());
        let directory = directory_of(state_dir, &located.root, id);
        let under_way = UnderWay::read(&directory).ok().flatten();
        Self {
            under_way: under_way.filter(|under_way| under_way.is_alive().unwrap_or(false)),
            undo: Undo::read(&directory).ok().flatten(),
            is_cut_off: Undo::is_cut_off(&directory),
            intent: peek(state_dir, &located.root, id).ok().flatten(),
        }
    }

    /// Returns the state of a container with an operation at work. The driver must not be asked
    /// then: it may not answer before the operation is over.
    pub(super) fn at_work(&self, located: &Located) -> Option<ContainerState> {
        if let Some(under_way) = &self.under_way {
            return Some(match under_way.operation.as_str() {
                "checkpoint" => ContainerState::Checkpointing,
                "restore" => ContainerState::Restoring,
                "resume" => ContainerState::Resuming,
                _ => ContainerState::Recovering,
            });
        }
        Some(match self.undo.as_ref()?.begun {
            _ if self.is_cut_off => ContainerState::CutOff,
            Begun::Waiting if matches!(all_can_answer(&located.container), Ok(true)) => {
                ContainerState::WaitingForRoom
            }
            Begun::Waiting => ContainerState::WaitingForAnswers,
            Begun::Suspend => ContainerState::Suspending,
            _ => ContainerState::Recovering,
        })
    }
}

impl ContainerState {
    /// Returns the state of a container with no operation at work.
    pub(super) fn at_rest(located: &Located, states: impl Iterator<Item = CudaState>) -> Self {
        let freezer = located.container.cgroup().freezer_state();
        if matches!(freezer, Ok(FreezerState::Frozen)) {
            return Self::Paused;
        }
        let states: Vec<CudaState> = states.collect();
        let all = |wanted| states.iter().all(|state| *state == wanted);
        match states.first() {
            None => Self::Unknown,
            Some(_) if states.contains(&CudaState::Failed) => Self::Failed,
            Some(CudaState::Running) if all(CudaState::Running) => Self::Running,
            Some(CudaState::Locked) if all(CudaState::Locked) => Self::Locked,
            Some(CudaState::Checkpointed) if all(CudaState::Checkpointed) => Self::Suspended,
            Some(CudaState::Unknown(_)) => Self::Unknown,
            Some(_) => Self::Mixed,
        }
    }
}
