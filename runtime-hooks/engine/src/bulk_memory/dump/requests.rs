//! The requests of a dump: where its bulk memory goes, and when.

use std::mem;
use std::path::Path;
use std::sync::Arc;

use stasis_gpu::gpu_path::NewFiles;
use stasis_memory_store::{DumpRequest, ImageId, mount_for_packs};

use crate::bulk_memory::places::{self, Places};
use crate::bulk_memory::request::{self, RequestFiles};
use crate::bulk_memory::staging;
use crate::context::Context;
use crate::error::Failure;
use crate::operation::Operation;
use crate::operation::timeline::Timeline;

/// Where GPU contents that are in files for a dump are stored.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Before the dump.
    pub(super) now: Request,
    /// Once the processes resume, if `now` is in memory.
    pub(super) afterwards: Option<Request>,
}

/// One store.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) wanted: DumpRequest,
    pub(super) files: RequestFiles,
}

impl Requests {
    /// Contents of this many bytes are stored in their place before the dump.
    pub(crate) fn in_place(
        context: &Context,
        operation: &Operation,
        bytes: u64,
        timeline: &mut Timeline<'_>,
    ) -> Result<Self, Failure> {
        let (places, room) = (Places::of(&context.settings), operation.reservation());
        let parent = staging::choose(room, &places, bytes, timeline);
        let files = RequestFiles::of(operation.directory());
        Ok(Self {
            now: Request::new(context, parent.as_deref(), files)?,
            afterwards: None,
        })
    }

    /// Contents stay in memory, which has room ([`staging::make_room`]), until processes resume.
    pub(crate) fn staged(context: &Context, operation: &Operation) -> Result<Self, Failure> {
        let (places, directory) = (Places::of(&context.settings), operation.directory());
        let of = |parent: Option<&Path>, files| Request::new(context, parent, files);
        Ok(Self {
            now: of(Some(&places.staging), RequestFiles::of(directory))?,
            afterwards: Some(of(
                places.apart.as_deref(),
                RequestFiles::of_staged(directory),
            )?),
        })
    }

    /// Returns the kind of files for GPU contents: packs, if the store is in memory. A recovery of
    /// this operation finds the store from then on.
    pub(super) fn new_files(&self) -> Result<NewFiles, Failure> {
        let Request { wanted, files } = &self.now;
        let in_memory = |directory: &&Path| directory.parent().is_some_and(places::in_memory);
        let Some(directory) = wanted.directory.as_deref().filter(in_memory) else {
            return Ok(NewFiles::Nameless);
        };
        files.write(wanted)?;
        Ok(NewFiles::Packs {
            directory: directory.to_owned(),
            id: wanted.image_id,
            mount: Arc::new(mount_for_packs(directory)?),
        })
    }

    /// The later store is in its place: from now on it is the only one.
    pub(super) fn are_in_place(&mut self) {
        if let Some(afterwards) = self.afterwards.take() {
            let staged = mem::replace(&mut self.now, afterwards);
            // Before its request: a recovery of this operation finds it by that alone. It goes with
            // the machine's memory at the latest.
            let _ = staged
                .wanted
                .directory
                .as_deref()
                .map(stasis_memory_store::remove);
            drop(staged);
        }
    }

    /// Removes all files that were written for the requests, in the image and beside it.
    pub(super) fn discard(&self, image: &Path) {
        for Request { wanted, .. } in self.afterwards.iter().chain([&self.now]) {
            // Files that stay do not prevent a restore; `stasis gc` finds the store.
            let _ = stasis_memory_store::discard(image, wanted.directory.as_deref());
        }
    }
}

impl Request {
    fn new(context: &Context, parent: Option<&Path>, files: RequestFiles) -> Result<Self, Failure> {
        let settings = &context.settings.gpu_contents;
        let image_id = ImageId::random().map_err(Failure::ImageId)?;
        let level = settings.compression_level;
        let wanted = DumpRequest {
            image_id,
            directory: parent.map(|parent| places::of_image(parent, image_id)),
            threads: request::threads(&context.settings, parent),
            level: (level > 0).then_some(level),
            progress: Some(files.progress.clone()),
        };
        Ok(Self { wanted, files })
    }
}
