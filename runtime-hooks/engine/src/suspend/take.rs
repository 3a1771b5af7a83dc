//! Takes the GPUs from a container, whose processes keep their contents in host memory.

use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::job::{Checkpointed, CudaJob, Locked};
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::ledger::amounts::Amounts;

use super::memory::only;
use super::{Error, Suspension};
use crate::container::inherited_devices;
use crate::operation::{Intent, PendingOn};
use crate::preflight::blocker::Blockers;
use crate::preflight::sharing::at_the_lock;

impl Suspension {
    pub(super) fn suspend(&self, members: &ProcessStates) -> Result<(), Error> {
        let (inventory, intent) = self.look(members)?;
        self.suspend_found(members, &inventory, &intent)
    }

    /// Returns the facts about processes before they are suspended.
    pub(super) fn look(&self, members: &ProcessStates) -> Result<(Inventory, Intent), Error> {
        let inventory = self.inventory()?;
        self.refuse_blockers(members, &inventory)?;
        let intent = self.intent(members, &inventory)?;
        Ok((inventory, intent))
    }

    pub(super) fn suspend_found(
        &self,
        members: &ProcessStates,
        inventory: &Inventory,
        intent: &Intent,
    ) -> Result<(), Error> {
        let suspended = self
            .make_room(members, intent, inventory)
            .and_then(|()| self.lock(intent.initial_state()))
            .and_then(|job| self.checkpoint(job, intent))
            .and_then(|job| self.leave_to_operator(job, intent.clone()));
        // A failed step has brought all processes back, except the lost ones.
        if let Err(error) = &suspended {
            self.leave(intent, error.lost());
        }
        suspended
    }

    fn checkpoint<'d>(
        &self,
        job: CudaJob<'d, Locked>,
        intent: &Intent,
    ) -> Result<CudaJob<'d, Checkpointed>, Error> {
        let job = self.give_up_shared(job)?;
        let job = self.take_inherited_devices(job)?;
        // For a rollback. If this cannot be written, a rollback waits for room that others take.
        let to_go_back = Amounts::from(&intent.room_to_go_back());
        let _ = self.operation.reservation().hold(&to_go_back);
        let job = self.lead_into_files(job)?;
        let job = job.checkpoint()?;
        if self.context.cancel.requested() {
            let lost = job.roll_back();
            return Err(Error::Cancelled { lost });
        }
        Ok(job)
    }

    /// Has GPU contents go into files, if the container has room for the contents that do not.
    fn lead_into_files<'d>(&self, job: CudaJob<'d, Locked>) -> Result<CudaJob<'d, Locked>, Error> {
        let led = self.measured(job.members()).and_then(|held| {
            self.driver.expect(&held);
            let alone = self.copying.arm(&held);
            self.admit_limits(&only(held, &alone))
        });
        match led {
            Ok(()) => Ok(job),
            Err(cause) => Err(Error::NoRoomInside {
                cause: Box::new(cause),
                lost: job.roll_back(),
            }),
        }
    }

    /// The memory that they share is known once they are locked: it is given up, or refused.
    fn give_up_shared<'d>(&self, job: CudaJob<'d, Locked>) -> Result<CudaJob<'d, Locked>, Error> {
        let given_up = || -> Result<(), Error> {
            let (container, inventory) = (&self.container, self.inventory()?);
            let snapshot = container.snapshot()?;
            let members = job.members();
            let seen = at_the_lock(&self.copying, members, container, &inventory, &snapshot);
            let seen = seen.map_err(Error::NotGivenUp)?;
            self.copying.add_notes(seen.notes);
            Blockers::check(seen.found, &self.context.settings)?;
            let given_up = self.copying.give_up_imports(&seen.shares);
            given_up.map(drop).map_err(Error::NotGivenUp)
        };
        match given_up() {
            Ok(()) => Ok(job),
            Err(cause) => Err(Error::Shared {
                cause: Box::new(cause),
                lost: job.roll_back(),
            }),
        }
    }

    /// A later checkpoint would no longer know which processes have inherited them.
    fn take_inherited_devices<'d>(
        &self,
        job: CudaJob<'d, Locked>,
    ) -> Result<CudaJob<'d, Locked>, Error> {
        match inherited_devices::give_up(&self.driver, job.members(), self.container.snapshot()) {
            Ok(_) => Ok(job),
            Err(cause) => Err(Error::InheritedDevices {
                cause,
                lost: job.roll_back(),
            }),
        }
    }

    /// Records that the processes wait for the operator. Without the record their needs would not
    /// be known, so they are brought back.
    fn leave_to_operator(
        &self,
        job: CudaJob<'_, Checkpointed>,
        intent: Intent,
    ) -> Result<(), Error> {
        let recorded = self.operation.record(&intent.left_to(PendingOn::Operator));
        recorded.map_err(|cause| Error::NotRecorded {
            cause,
            lost: job.roll_back(),
        })
    }
}
