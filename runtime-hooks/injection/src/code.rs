//! The code that is injected, as it was built and checked (`build.rs`).

/// Position-independent code, and the offsets of its parts in bytes.
///
/// The code may lie anywhere, page-aligned; the pages from `board` on, [`Board::LENGTH`] bytes, are
/// zeros, writable and not executable, and the pages before `board` the other way round.
///
/// [`Board::LENGTH`]: stasis_injected_copy::Board::LENGTH
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The code.
    pub code: &'static [u8],
    /// The stand-in for memcpy(3).
    pub memcpy: usize,
    /// The stand-in for mmap(2).
    pub mmap: usize,
    /// The entry of a helper: its index is in `rdi`, its stack has 4 KiB, all its signals are
    /// blocked. It never returns.
    pub helper: usize,
    /// The begin of the board: whole pages behind the begin of the code.
    pub board: usize,
}

/// The image that was built.
pub const IMAGE: Image = include!(concat!(env!("OUT_DIR"), "/copy.rs"));

/// Position-independent code for the checkpoint thread (`stasis-injected-survey`), and the offsets
/// of its parts in bytes. It lies as the other image does.
#[derive(Clone, Copy, Debug)]
pub struct SurveyImage {
    /// The code.
    pub code: &'static [u8],
    /// The entry of the thread: its board is in `rdi`. The thread goes back by the frame that the
    /// board names.
    pub survey: usize,
    /// The stand-in for calloc(3).
    pub calloc: usize,
    /// The stand-in for free(3).
    pub free: usize,
    /// The begin of the board: whole pages behind the begin of the code.
    pub board: usize,
}

/// The image that was built.
pub(crate) const SURVEY: SurveyImage = include!(concat!(env!("OUT_DIR"), "/survey.rs"));

#[cfg(test)]
mod tests;
