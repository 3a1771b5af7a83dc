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
pub const IMAGE: Image = include!(concat!(env!("OUT_DIR"), "/image.rs"));

#[cfg(test)]
mod tests;
