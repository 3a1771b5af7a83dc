//! CRIU's files as one blob: a compressed tar of the files in the image's manifest, in its order.
//!
//! Equal files make equal blobs: times, owners and modes are left out. Unpacking takes nothing but
//! contents from the tar: names and lengths come from the manifest.

use std::io::{self, Read, Write};
use std::path::Path;

use stasis_linux::file;
use tar::Builder;

use crate::archive::entries::{Entries, What};
use crate::archive::{LEVEL, add_file, refused, unreadable, write};

/// A file, as an image's manifest lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed<'a> {
    /// Its name, without a slash.
    pub(crate) name: &'a str,
    /// Its length.
    pub(crate) bytes: u64,
}

/// Packs files of a directory.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] for a file that is not as it is listed.
pub(crate) fn pack(directory: &Path, files: &[Listed<'_>], into: impl Write) -> io::Result<()> {
    let mut tar = Builder::new(zstd::Encoder::new(into, LEVEL)?);
    for Listed { name, bytes } in files {
        let found = file::open(&directory.join(name))?.ok_or(io::ErrorKind::NotFound)?;
        if found.metadata()?.len() != *bytes {
            return Err(refused(format!("{name} does not have {bytes} bytes")));
        }
        add_file(&mut tar, found, *bytes, name)?;
    }
    tar.into_inner()?.finish()?.flush()
}

/// Unpacks files into a directory that has none of them. Does not sync them.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] for anything but these files in this order.
pub(crate) fn unpack(from: impl Read, files: &[Listed<'_>], directory: &Path) -> io::Result<()> {
    let mut entries = Entries::new(zstd::Decoder::new(from).map_err(unreadable)?);
    for Listed { name, bytes } in files {
        let entry = entries.next().map_err(unreadable)?;
        let entry = entry.ok_or_else(|| refused(format!("it ends before {name}")))?;
        if (entry.what, entry.name.as_str(), entry.bytes) != (What::File, *name, *bytes) {
            return Err(refused(format!(
                "{:?} is in the place of {name}",
                entry.name
            )));
        }
        write(&mut entries, &entry, &directory.join(name))?;
    }
    match entries.next().map_err(unreadable)? {
        None => Ok(()),
        Some(_) => Err(refused("it has more files than are listed")),
    }
}

#[cfg(test)]
mod tests;
