//! GPU contents of a dump that are stored before it, and away from their processes during it.

use std::mem;
use std::path::Path;

use stasis_linux::cgroup::FreezerState;
use stasis_linux::error_chain;
use stasis_memory_store::Report;

use super::MemoryDump;
use super::requests::Request;
use crate::container::Container;
use crate::error::Failure;
use crate::gpu_path::hole::{self, Holder, InFile};
use crate::gpu_path::{NewFiles, Unanswered};
use crate::image::directory;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;
use crate::request::Resumes;

/// Who has them. A step takes the state before it: what it leaves, if it fails, is what there is to
/// undo then.
#[derive(Debug, Default)]
pub(super) enum Contents {
    /// Their processes, and nobody stores them.
    #[default]
    Unstored,
    /// The driver puts them into files, from which somebody stores them, who ends with this.
    Storing(Holder),
    /// The store, and who gives them back to their processes.
    Away(Holder, Report, Resumes),
    /// The same once CRIU has dumped the processes. These have them back, or somebody waits for who
    /// wants that ([`hole::give_back`]).
    Dumped(Report),
}

impl Contents {
    /// CRIU has dumped the processes: gives back what is away from those that go on now; returns
    /// the reason if that fails. What is to come back later is left to who asks for it, also if
    /// this checkpoint fails after all. The driver restores no process that lacks its contents.
    fn dumped(self, directory: &Path) -> (Self, Option<String>) {
        let Self::Away(holder, stored, resumes) = self else {
            return (self, None);
        };
        let not_back = match resumes {
            Resumes::AtOnce => give_back(holder, directory),
            // Who holds them ends when their processes have ended, or waits for the resume.
            Resumes::Later => None,
        };
        (Self::Dumped(stored), not_back)
    }

    /// After a failure: nobody stores any more, and what is away is given back; returns the reason
    /// if that fails.
    pub(super) fn undo(self, container: &Container, directory: &Path) -> Option<String> {
        let Self::Away(holder, ..) = self else {
            return None;
        };
        // No process of a frozen container can map anything. One that cannot be thawed is a process
        // that cannot be given anything.
        let cgroup = container.cgroup();
        let found = cgroup.freezer_state();
        let _ = cgroup.thaw();
        let failed = give_back(holder, directory);
        if let Ok(FreezerState::Frozen) = found {
            // Who rolls back sees to it.
            let _ = cgroup.freeze();
        }
        failed
    }
}

fn give_back(holder: Holder, directory: &Path) -> Option<String> {
    let given = holder.give_back();
    // One that was killed, or is late, is nobody's any more.
    let given = given.or_else(|_| hole::give_back(directory));
    given.err().map(|error| error_chain(&error))
}

impl MemoryDump<'_> {
    /// Before the driver puts GPU contents into files, so many bytes in all: starts who stores them
    /// ([`Self::storing`], [`Self::take_away`]).
    ///
    /// # Errors
    /// [`Failure::Operation`], [`Failure::GpuContents`].
    pub(crate) fn begin_to_store(&mut self, expected: u64) -> Result<(), Failure> {
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let Request { wanted, files } = &store.requests.now;
        // Whoever recovers this operation finds the store there.
        files.write(wanted)?;
        let places = directory::places(self.image.directory());
        let image = (self.image.path(), places.as_slice(), self.image.lock());
        let mount = match &store.files {
            NewFiles::Nameless => None,
            NewFiles::Packs { mount, .. } => Some(&**mount),
        };
        let (request, directory) = (
            (wanted, files.request.as_path()),
            self.operation.directory(),
        );
        let holder = Holder::start(expected, image, request, directory, mount);
        store.contents = Contents::Storing(holder.map_err(Failure::GpuContents)?);
        Ok(())
    }

    /// Who stores them, and is to hear of each process that has its contents in its file.
    pub(crate) fn storing(&self) -> Option<&Holder> {
        match &self.store.as_ref()?.contents {
            Contents::Storing(holder) => Some(holder),
            _ => None,
        }
    }

    /// Stores GPU contents that are in files, and takes them away from their processes. They come
    /// back by [`Self::undo`], with the end of a dump, or by [`hole::give_back`].
    ///
    /// # Errors
    /// [`Failure::GpuContents`], [`Failure::Cancelled`].
    pub(crate) fn take_away(
        &mut self,
        in_files: Vec<InFile>,
        resumes: Resumes,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let Contents::Storing(mut holder) = mem::take(&mut store.contents) else {
            return Ok(());
        };
        if in_files.is_empty() {
            // The image has no holes.
            drop(holder);
            self.remove_unused();
            return Ok(());
        }
        let estimate = ProgressEstimate::said(&store.requests.now.files.progress);
        let taken = timeline.time_moving("store", estimate, || {
            let stored = holder.store(in_files, &self.context.cancel)?;
            let taken = holder.take_away();
            store.contents = Contents::Away(holder, stored, resumes);
            Ok(taken?)
        });
        taken.map_err(|error: Unanswered| error.into())
    }

    /// After a dump that succeeded: what is away comes back to processes that go on now; returns
    /// the reason if that fails.
    pub(crate) fn dumped(&mut self) -> Option<String> {
        let store = self.store.as_mut()?;
        let contents = mem::take(&mut store.contents);
        let (contents, not_back) = contents.dumped(self.operation.directory());
        store.contents = contents;
        not_back
    }
}
