//! The archive of `podman container checkpoint --export`, and of kubelet's checkpoints: a tar of
//! the image (`checkpoint/`) and of the files with which the engine makes the container again
//! (checkpointctl's `lib/metadata.go` names them all).
//!
//! An archive is unpacked as hostile: regular files and directories alone, below one directory,
//! accessible to root alone, and no more bytes than the caller allows.

pub(crate) mod bundle;
mod entries;

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use stasis_linux::file;
use tar::{Builder, EntryType, Header};

use entries::{Entries, Entry, What};

/// The directory of the image, among the engine's files (checkpointctl's `lib/metadata.go`).
pub(crate) const CHECKPOINT: &str = "checkpoint";
/// The file that marks files as an engine's.
pub(crate) const CONFIGURATION: &str = "config.dump";
/// A tar of what the container has written: podman's of the new files, containerd's a layer.
pub(crate) const WRITABLE: &str = "rootfs-diff.tar";

/// Modes that keep other users from memory.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
const BUFFER: usize = 256 << 10;
/// The level with which bulk memory is compressed, too.
pub(crate) const LEVEL: i32 = 1;
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The compression of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not at all.
    None,
    /// With zstd, as memory already is.
    Zstd,
}

/// Unpacks an archive, compressed with zstd or not, into a directory of the caller's own. Does not
/// sync the files.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] for an archive that is not as described above, or
/// has more than `most` bytes.
pub(crate) fn unpack(from: impl Read, directory: &Path, most: u64) -> io::Result<()> {
    let mut entries = Entries::new(plain(from)?);
    let mut left = most;
    while let Some(entry) = entries.next().map_err(unreadable)? {
        let path = directory.join(&entry.name);
        match entry.what {
            What::Directory => make(&path)?,
            What::File => {
                let after = left.checked_sub(entry.bytes);
                left = after.ok_or_else(|| refused(format!("it has more than {most} bytes")))?;
                make(path.parent().unwrap_or(directory))?;
                write(&mut entries, &entry, &path)?;
            }
        }
    }
    Ok(())
}

/// Reads an archive to its end, and writes nothing.
#[cfg(fuzzing)]
pub fn read_all(from: impl Read, most: u64) -> io::Result<()> {
    let mut entries = Entries::new(plain(from)?);
    let mut left = most;
    while let Some(entry) = entries.next()? {
        let after = left.checked_sub(entry.bytes);
        left = after.ok_or_else(|| refused("it has too many bytes"))?;
        io::copy(&mut entries, &mut io::sink())?;
    }
    Ok(())
}

/// Packs the entries of a directory whose names `is_meant` accepts: files first, and then
/// directories, each by name. Equal files make equal archives.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] for anything but files and directories.
pub(crate) fn pack(
    directory: &Path,
    is_meant: impl Fn(&str) -> bool,
    compression: Compression,
    into: impl Write,
) -> io::Result<()> {
    match compression {
        Compression::None => pack_plain(directory, is_meant, into),
        Compression::Zstd => {
            let mut packed = zstd::Encoder::new(into, LEVEL)?;
            pack_plain(directory, is_meant, &mut packed)?;
            packed.finish()?.flush()
        }
    }
}

/// Compresses with zstd.
pub(crate) fn compress(mut from: impl Read, into: impl Write) -> io::Result<()> {
    let mut packed = zstd::Encoder::new(into, LEVEL)?;
    io::copy(&mut from, &mut packed)?;
    packed.finish()?.flush()
}

/// Undoes [`compress`].
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] for data that is not zstd's, or has more than
/// `most` bytes.
pub(crate) fn decompress(from: impl Read, mut into: impl Write, most: u64) -> io::Result<()> {
    let from = zstd::Decoder::new(from).map_err(unreadable)?;
    let mut from = BufReader::with_capacity(BUFFER, from.take(most.saturating_add(1)));
    match io::copy(&mut from, &mut into).map_err(unreadable)? > most {
        true => Err(refused(format!("it has more than {most} bytes"))),
        false => into.flush(),
    }
}

fn pack_plain(
    directory: &Path,
    is_meant: impl Fn(&str) -> bool,
    into: impl Write,
) -> io::Result<()> {
    let mut tar = Builder::new(into);
    for (name, what) in sorted(directory)? {
        if is_meant(&name) {
            add(&mut tar, &directory.join(&name), &name, what)?;
        }
    }
    tar.into_inner()?.flush()
}

/// Returns the contents of an archive without its compression.
fn plain<'r>(mut from: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let mut first = Vec::new();
    from.by_ref().take(4).read_to_end(&mut first)?;
    let is_zstd = first == ZSTD;
    if first.starts_with(&GZIP) {
        return Err(refused(
            "it is compressed with gzip, which is not read here; export it with `--compress zstd` \
             or none, or unpack it with gunzip",
        ));
    }
    let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(first).chain(from));
    Ok(match is_zstd {
        true => Box::new(zstd::Decoder::with_buffer(whole).map_err(unreadable)?),
        false => Box::new(whole),
    })
}

fn make(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Writes the contents of an entry to a new file.
pub(crate) fn write(
    entries: &mut Entries<impl Read>,
    entry: &Entry,
    path: &Path,
) -> io::Result<()> {
    let mut file = file::create_new(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => refused(format!("{:?} is there twice", entry.name)),
        _ => error,
    })?;
    let mut contents = BufReader::with_capacity(BUFFER, entries);
    io::copy(&mut contents, &mut file)
        .map(drop)
        .map_err(unreadable)
}

/// Files before directories, by name.
fn sorted(directory: &Path) -> io::Result<Vec<(String, What)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|name| refused(format!("{name:?} is no text")))?;
        match (kind.is_file(), kind.is_dir()) {
            (true, _) => found.push((name, What::File)),
            (_, true) => found.push((name, What::Directory)),
            _ => return Err(refused(format!("{name:?} is neither file nor directory"))),
        }
    }
    found.sort_unstable_by(|one, other| {
        let key = |what: What| what == What::Directory;
        (key(one.1), &one.0).cmp(&(key(other.1), &other.0))
    });
    Ok(found)
}

fn add(tar: &mut Builder<impl Write>, path: &Path, name: &str, what: What) -> io::Result<()> {
    match what {
        What::File => {
            let file = file::open(path)?.ok_or(io::ErrorKind::NotFound)?;
            let bytes = file.metadata()?.len();
            add_file(tar, file, bytes, name)
        }
        What::Directory => {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Directory);
            header.set_mode(DIRECTORY_MODE);
            header.set_size(0);
            tar.append_data(&mut header, format!("{name}/"), io::empty())?;
            for (inner, what) in sorted(path)? {
                add(tar, &path.join(&inner), &format!("{name}/{inner}"), what)?;
            }
            Ok(())
        }
    }
}

/// Adds a file of `bytes` bytes, with nothing but its name and contents.
pub(crate) fn add_file(
    tar: &mut Builder<impl Write>,
    file: File,
    bytes: u64,
    name: &str,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(FILE_MODE);
    header.set_size(bytes);
    // A file that has become shorter would take bytes from the next entry.
    tar.append_data(&mut header, name, Exactly { file, left: bytes })
}

/// Exactly `left` bytes of a file; reading fails if it has fewer.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = Read::by_ref(&mut self.file).take(self.left).read(into)?;
        if read == 0 && self.left > 0 && !into.is_empty() {
            return Err(refused("it has become shorter"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// Errors that are not the kernel's come from tar or zstd, and are about the archive.
pub(crate) fn unreadable(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => error,
        None => refused(error.to_string()),
    }
}

pub(crate) fn refused(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests;
