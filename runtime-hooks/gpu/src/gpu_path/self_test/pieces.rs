//! Contents that are loaded piece by piece.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Length of a piece. The driver's pieces have 2 MiB: one of them spans an end of this one.
const PIECE: usize = 3 << 20;

/// Copies from file to file, and reports the end of each piece.
///
/// # Errors
/// An I/O error, or an error of `copied`.
pub(super) fn copy_pieces(
    from: &File,
    to: &File,
    length: u64,
    mut copied: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut start = 0;
    while start < length {
        let bytes = piece
            .len()
            .min(usize::try_from(length - start).unwrap_or(PIECE));
        from.read_exact_at(&mut piece[..bytes], start)?;
        to.write_all_at(&piece[..bytes], start)?;
        start += bytes as u64;
        copied(start)?;
    }
    Ok(())
}
