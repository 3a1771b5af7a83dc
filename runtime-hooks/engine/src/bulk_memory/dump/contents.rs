//! GPU contents of a dump that are stored before it, and away from their processes during it.

use std::mem;
use std::path::Path;

use stasis_gpu::gpu_path::detached::{self, Holder, InFile, are_detached};
use stasis_gpu::gpu_path::{NewFiles, Unanswered};
use stasis_linux::cgroup::FreezerState;
use stasis_linux::error_chain;
use stasis_memory_store::StoreStatistics;

use super::MemoryDump;
use super::requests::Request;
use crate::container::Container;
use crate::error::Failure;
use crate::image::directory;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;
use crate::request::Resumes;

/// Where the contents are. A step takes the state before it, and leaves the state that has to be
/// undone if it fails.
#[derive(Debug, Default)]
pub(super) enum Contents {
    /// In their processes; no process stores them.
    #[default]
    Unstored,
    /// The driver puts them into files, from which a process stores them. It ends with this value.
    Storing(Holder),
    /// In the store. The holder gives them back to their processes.
    Detached(Holder, StoreStatistics, Resumes),
    /// The same once CRIU has dumped the processes. These have their contents back, or a process
    /// waits until they are requested ([`detached::give_back`]).
    Dumped(StoreStatistics),
}

impl Contents {
    /// After the dump: gives contents back to processes that resume now; returns the reason if that
    /// fails. Others come back when an operation requests them, also if this checkpoint fails after
    /// all. The driver restores no process that lacks its contents.
    fn dumped(self, directory: &Path) -> (Self, Option<String>) {
        let Self::Detached(holder, stored, resumes) = self else {
            return (self, None);
        };
        let not_back = match resumes {
            Resumes::AtOnce => give_back(Some(holder), directory),
            // The holder ends when the processes have ended, or waits for the resume.
            Resumes::Later => None,
        };
        (Self::Dumped(stored), not_back)
    }

    /// After a failure: stops storing, and gives contents back that are away; returns the reason if
    /// that fails.
    pub(super) fn undo(self, container: &Container, directory: &Path) -> Option<String> {
        let holder = match self {
            Self::Detached(holder, ..) => Some(holder),
            Self::Dumped(_) if are_detached(directory) => None,
            Self::Unstored | Self::Storing(_) | Self::Dumped(_) => return None,
        };
        // No process of a frozen container can map anything. If the container cannot be thawed, its
        // contents cannot be given back.
        let cgroup = container.cgroup();
        let found = cgroup.freezer_state();
        let _ = cgroup.thaw();
        let failed = give_back(holder, directory);
        if let Ok(FreezerState::Frozen) = found {
            // If this fails, the rollback corrects it.
            let _ = cgroup.freeze();
        }
        failed
    }
}

fn give_back(holder: Option<Holder>, directory: &Path) -> Option<String> {
    // A holder that was killed or is late does not answer: another process gives them back.
    let is_given = holder.is_some_and(|holder| holder.give_back().is_ok());
    let given = match is_given {
        true => Ok(()),
        false => detached::give_back(directory),
    };
    given.err().map(|error| error_chain(&error))
}

impl MemoryDump<'_> {
    /// Before the driver puts `expected` bytes of GPU contents into files: starts the process that
    /// stores them ([`Self::storing`], [`Self::detach`]).
    pub(crate) fn begin_to_store(&mut self, expected: u64) -> Result<(), Failure> {
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let Request { wanted, files } = &store.requests.now;
        // A recovery of this operation finds the store by this request.
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

    /// The storing process, to be notified of each process that has its contents in its file.
    pub(crate) fn storing(&self) -> Option<&Holder> {
        match &self.store.as_ref()?.contents {
            Contents::Storing(holder) => Some(holder),
            _ => None,
        }
    }

    /// Stores GPU contents that are in files, and takes them away from their processes. They come
    /// back by [`Self::undo`], with the end of a dump, or by [`detached::give_back`].
    pub(crate) fn detach(
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
            let taken = holder.detach();
            store.contents = Contents::Detached(holder, stored, resumes);
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
