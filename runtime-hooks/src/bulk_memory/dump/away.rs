//! GPU contents of a dump that are stored before it, and away from their processes during it.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use stasis_linux::cgroup::FreezerState;
use stasis_linux::error_chain;
use stasis_memory_store::{DumpRequest, Report, mount_for_packs};

use super::MemoryDump;
use crate::bulk_memory::places;
use crate::bulk_memory::request::RequestFiles;
use crate::container::Container;
use crate::error::Failure;
use crate::gpu_path::hole::{self, Holder, InFile, are_away};
use crate::gpu_path::{NewFiles, Unanswered};
use crate::image::directory;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;
use crate::request::AfterDump;

/// When the contents come back to processes that go on after a dump that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Back {
    /// With the end of the dump.
    AtOnce,
    /// When their caller, who has paused the container, resumes it: no process of a frozen
    /// container can map anything, and none of them may run before.
    AtResume,
}

/// What is stored, and who holds the contents.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) stored: Report,
    back: Back,
    /// `None` once they are back.
    holder: RefCell<Option<Holder>>,
}

impl MemoryDump<'_> {
    /// Before the driver puts GPU contents into files, so many bytes in all: starts who stores them
    /// ([`Self::storing`], [`Self::take_away`]).
    ///
    /// # Errors
    /// [`Failure::Operation`], [`Failure::GpuContents`].
    pub(crate) fn begin_to_store(&mut self, expected: u64) -> Result<(), Failure> {
        let Some((request, files)) = &self.requested else {
            return Ok(());
        };
        // Whoever recovers this operation finds the store there.
        files.write(request)?;
        let request = (request, files.request.as_path());
        let places = directory::places(self.image.directory());
        let image = (self.image.path(), places.as_slice(), self.image.lock());
        let mount = self.mount.as_deref();
        let holder = Holder::start(expected, image, request, self.directory, mount);
        self.storing = Some(holder.map_err(Failure::GpuContents)?);
        Ok(())
    }

    /// Who stores them, and is to hear of each process that has its contents in its file.
    pub(crate) fn storing(&self) -> Option<&Holder> {
        self.storing.as_ref()
    }

    /// Stores GPU contents that are in files, and takes them away from their processes. They come
    /// back by [`Self::undo`], with the end of a dump, or by [`hole::give_back`].
    ///
    /// # Errors
    /// [`Failure::GpuContents`], [`Failure::Cancelled`].
    pub(crate) fn take_away(
        &mut self,
        in_files: Vec<InFile>,
        back: Back,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        let (Some((_, files)), Some(mut holder)) = (&self.requested, self.storing.take()) else {
            return Ok(());
        };
        if in_files.is_empty() {
            // The image has no holes.
            drop(holder);
            self.remove_unused();
            (self.requested, self.afterwards) = (None, None);
            return Ok(());
        }
        let estimate = ProgressEstimate::said(&files.progress);
        let taken = timeline.time_moving("store", estimate, || {
            let stored = holder.store(in_files, &self.context.cancel)?;
            let taken = holder.take_away();
            let holder = RefCell::new(Some(holder));
            self.away = Some(Away {
                stored,
                back,
                holder,
            });
            Ok(taken?)
        });
        taken.map_err(|error: Unanswered| error.into())
    }

    /// After a dump that succeeded: gives back what is away from processes that go on now; returns
    /// the reason if that fails. What is to come back later is left to who asks for it
    /// ([`hole::give_back`]), also if this checkpoint fails after all. The driver restores no
    /// process that lacks its contents.
    pub(crate) fn give_back_at_once(&self) -> Option<String> {
        let away = self.away.as_ref()?;
        match (self.options.after, away.back) {
            (AfterDump::LeaveRunning, Back::AtOnce) => self.give_back(),
            // Who holds them ends when their processes have ended, or waits for the resume.
            (AfterDump::Exit, _) | (AfterDump::LeaveRunning, Back::AtResume) => {
                drop(away.holder.take());
                None
            }
        }
    }

    /// Gives back what is away; returns the reason if that fails.
    fn give_back(&self) -> Option<String> {
        let mut held = self.away.as_ref()?.holder.borrow_mut();
        let given = held.take()?.give_back();
        // One that was killed, or is late, is nobody's any more.
        let given = given.or_else(|_| hole::give_back(self.directory));
        given.err().map(|error| error_chain(&error))
    }

    /// The same for a container that may be frozen: no process of it can map anything then.
    fn give_back_to(&self, container: &Container) -> Option<String> {
        if self.away.as_ref()?.holder.borrow().is_none() {
            return None;
        }
        let cgroup = container.cgroup();
        let found = cgroup.freezer_state();
        // One that cannot be thawed is a process that cannot be given anything.
        let _ = cgroup.thaw();
        let failed = self.give_back();
        if let Ok(FreezerState::Frozen) = found {
            // Who rolls back sees to it.
            let _ = cgroup.freeze();
        }
        failed
    }

    /// What files for GPU contents are to be. Whoever recovers this operation finds the store from
    /// now on.
    pub(crate) fn new_files(&mut self) -> Result<NewFiles, Failure> {
        let Some((directory, request, files)) = self.own_files() else {
            return Ok(NewFiles::Nameless);
        };
        files.write(request)?;
        let mount = Arc::new(mount_for_packs(directory)?);
        let files = NewFiles::Packs {
            directory: directory.to_owned(),
            id: request.image_id,
            mount: Arc::clone(&mount),
        };
        // As long as this lives, those who work for us can take it.
        self.mount = Some(mount);
        Ok(files)
    }

    /// The store's directory, if it has files for GPU contents from the beginning.
    fn own_files(&self) -> Option<(&Path, &DumpRequest, &RequestFiles)> {
        let (request, files) = self.requested.as_ref()?;
        let in_memory = |directory: &&Path| directory.parent().is_some_and(places::in_memory);
        let directory = request.directory.as_deref().filter(in_memory)?;
        Some((directory, request, files))
    }

    /// After a failure: gives back what is away, and removes what was stored.
    pub(crate) fn undo(&mut self, container: &Container) {
        // Who stores has ended then.
        self.storing = None;
        if self.away.is_none() {
            self.remove_unused();
            return;
        }
        let not_returned = self.give_back_to(container);
        if self.image.is_last_copy(container.init()) {
            let _ = self.write_origin();
        } else if not_returned.is_none() {
            self.remove_unused();
        }
    }

    /// Whether the store may have the only copy of what processes lack.
    pub(crate) fn is_stored_alone(&self) -> bool {
        are_away(self.directory)
    }
}
