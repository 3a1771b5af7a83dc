//! The code that is injected, as it was built and checked (`build.rs`).

/// Position-independent code, and where in it things are, as offsets in bytes.
///
/// It is put anywhere, page-aligned; the pages from `board` on, [`Board::LENGTH`] bytes, are
/// zeros, writable and not executable, those before `board` the other way round.
///
/// [`Board::LENGTH`]: stasis_injected_copy::Board::LENGTH
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The code.
    pub code: &'static [u8],
    /// What stands in for memcpy(3).
    pub memcpy: usize,
    /// What stands in for mmap(2).
    pub mmap: usize,
    /// Where a helper begins: its index is in `rdi`, its stack has 4 KiB, all its signals are
    /// blocked. It never returns.
    pub helper: usize,
    /// Where the board begins: whole pages behind the begin of the code.
    pub board: usize,
}

/// The image that was built.
pub const IMAGE: Image = include!(concat!(env!("OUT_DIR"), "/copy.rs"));

/// Position-independent code for the checkpoint thread (`stasis-injected-survey`), and where in it
/// things are, as offsets in bytes. Its board may lie anywhere.
#[derive(Clone, Copy, Debug)]
pub struct SurveyImage {
    /// The code.
    pub code: &'static [u8],
    /// Where the thread begins: its board is in `rdi`. It goes back by the frame that the board
    /// names.
    pub survey: usize,
    /// Behind the code: whole pages.
    pub board: usize,
}

/// The image that was built.
pub const SURVEY: SurveyImage = include!(concat!(env!("OUT_DIR"), "/survey.rs"));

#[cfg(test)]
mod tests;
