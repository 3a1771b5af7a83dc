//! CRIU's files as one blob: a tar of what the image's manifest lists, in its order, compressed.
//!
//! Equal files make equal blobs: times, owners and modes are left out. Whoever unpacks it takes
//! nothing from it but contents: names and lengths are those that the manifest lists.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use stasis_linux::file;
use tar::{Archive, Builder, EntryType, Header};

/// As bulk memory is compressed.
const LEVEL: i32 = 1;
/// Those of memory that others cannot read.
const MODE: u32 = 0o600;
/// What is read at once.
const BUFFER: usize = 256 << 10;

/// A file, as an image's manifest lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name, without a slash.
    pub name: &'a str,
    /// Its length.
    pub bytes: u64,
}

/// Packs files of a directory.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] for a file that is not as it is listed.
pub fn pack(directory: &Path, files: &[Listed<'_>], into: impl Write) -> io::Result<()> {
    let mut tar = Builder::new(zstd::Encoder::new(into, LEVEL)?);
    for Listed { name, bytes } in files {
        let found = file::open(&directory.join(name))?.ok_or(io::ErrorKind::NotFound)?;
        if found.metadata()?.len() != *bytes {
            return Err(refused(format!("{name} does not have {bytes} bytes")));
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        // An error for a name that is too long for it: a second entry would be needed.
        header.set_path(name)?;
        header.set_size(*bytes);
        header.set_mode(MODE);
        header.set_mtime(0);
        // One that has become shorter would take bytes from the next entry.
        let contents = Exactly::new(found, *bytes);
        header.set_cksum();
        tar.append(&header, contents)?;
    }
    tar.into_inner()?.finish()?.flush()
}

/// Unpacks files into a directory that has none of them. They are not on disk yet.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] for anything but these files in this order.
pub fn unpack(from: impl Read, files: &[Listed<'_>], directory: &Path) -> io::Result<()> {
    let decoder = zstd::Decoder::with_buffer(BufReader::new(from)).map_err(unreadable)?;
    let mut tar = Archive::new(decoder);
    let mut entries = tar.entries()?.raw(true);
    for listed in files {
        let mut entry = match entries.next() {
            Some(entry) => entry.map_err(unreadable)?,
            None => return Err(refused(format!("it ends before {}", listed.name))),
        };
        check(entry.header(), listed)?;
        write(&mut entry, listed, directory)?;
    }
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(refused("it has more files than are listed".to_owned())),
    }
}

fn check(header: &Header, listed: &Listed<'_>) -> io::Result<()> {
    let is_file = header.entry_type() == EntryType::Regular;
    let is_listed = *header.path_bytes() == *listed.name.as_bytes();
    if is_file && is_listed && header.size()? == listed.bytes {
        return Ok(());
    }
    let name = String::from_utf8_lossy(&header.path_bytes()).into_owned();
    Err(refused(format!(
        "{name:?} is in the place of {}",
        listed.name
    )))
}

fn write(contents: &mut impl Read, listed: &Listed<'_>, directory: &Path) -> io::Result<()> {
    let mut file = file::create_new(&directory.join(listed.name))?;
    let mut buffer = vec![0; BUFFER];
    let mut left = listed.bytes;
    while left > 0 {
        let most = usize::try_from(left).map_or(BUFFER, |left| left.min(BUFFER));
        let read = contents.read(&mut buffer[..most]).map_err(unreadable)?;
        if read == 0 {
            return Err(refused(format!("it ends in the middle of {}", listed.name)));
        }
        file.write_all(&buffer[..read])?;
        left -= read as u64;
    }
    Ok(())
}

/// What is no error of the kernel's is one of tar or zstd, about what they read.
pub(crate) fn unreadable(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => error,
        None => refused(error.to_string()),
    }
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// So many bytes of a file, and an error if it has fewer.
pub(crate) struct Exactly {
    inner: File,
    left: u64,
}

impl Exactly {
    pub(crate) fn new(inner: File, left: u64) -> Self {
        Self { inner, left }
    }
}

impl Read for Exactly {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        if most == 0 {
            return Ok(0);
        }
        let read = self.inner.read(&mut into[..most])?;
        if read == 0 {
            return Err(refused("it has become shorter".to_owned()));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
