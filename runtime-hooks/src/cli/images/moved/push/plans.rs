//! What of an image is in blobs that are there, and what is put into new ones.

use stasis_config::Settings;
use stasis_memory_store::{
    BlobsOf, Index, LargeFile, Lengths, MOST_CONTENTS_BYTES, PAGE, Plan, Reader, StoreError,
    cut_files,
};

use super::super::source::{Memory, Source};
use super::gathered::GatheredImage;
use super::outgoing::Outgoing;
use super::there::There;
use crate::cli::command_error::MoveError;
use crate::image::files::ImageFile;

/// Of what has less than this others have nothing that were worth it.
const LARGE: u64 = 4 << 20;

/// Pages of memory are in files of this name (criu/image-desc.c).
pub(super) fn is_large(file: &ImageFile) -> bool {
    let is_of_pages = file.name.starts_with("pages-") && file.bytes.is_multiple_of(PAGE as u64);
    is_of_pages && file.bytes >= LARGE
}

/// The pieces of large files, if there are any.
pub(super) fn cut(
    settings: &Settings,
    source: &Source,
    large: &[LargeFile<'_>],
) -> Result<Option<(Index, Reader)>, MoveError> {
    if large.is_empty() {
        return Ok(None);
    }
    let threads = settings.gpu_contents.threads_on_disk();
    let cut = cut_files(&source.directory, large, threads)?;
    Ok(Some(cut))
}

/// What there is to do.
pub(super) struct Plans<'i> {
    files: Option<Plan<'i>>,
    memory: Option<Plan<'i>>,
}

impl<'i> Plans<'i> {
    /// Reads all of the image.
    ///
    /// # Errors
    /// [`MoveError`]: it is damaged, or more than a registry takes.
    pub(super) fn of(
        settings: &Settings,
        source: &'i Source,
        pieces: Option<&'i (Index, Reader)>,
        there: &There,
        lengths: impl Fn(BlobsOf, u64) -> Lengths,
    ) -> Result<Self, MoveError> {
        let plan = |sort, index: &'i Index, reader, there: &[_]| {
            let threads = settings.gpu_contents.threads();
            Plan::of(
                sort,
                index,
                reader,
                there,
                |bytes| lengths(sort, bytes),
                threads,
            )
        };
        let of_files = |(index, reader): &'i (Index, Reader)| {
            plan(BlobsOf::Files, index, reader, &there.files)
        };
        let of_memory = |Memory { index, reader, .. }: &'i Memory| {
            plan(BlobsOf::Memory, index, reader, &there.memory)
        };
        let plans = Self {
            files: pieces.map(of_files).transpose()?,
            memory: source.memory.as_ref().map(of_memory).transpose()?,
        };
        let sorts = [&plans.files, &plans.memory].into_iter().flatten();
        let listed: u64 = sorts.map(Plan::most_listed_bytes).sum();
        if listed > MOST_CONTENTS_BYTES {
            let most = MOST_CONTENTS_BYTES;
            let what = format!("its list of contents may have {listed} bytes, and at most {most}");
            return Err(StoreError::TooMuch { what }.into());
        }
        Ok(plans)
    }

    /// Files come first: a restore begins with them.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn put(self, into: &mut Outgoing<'_, '_>) -> Result<GatheredImage, MoveError> {
        let files = self.files.map(|plan| plan.put(into)).transpose()?;
        let memory = self.memory.map(|plan| plan.put(into)).transpose()?;
        Ok(GatheredImage { files, memory })
    }
}
