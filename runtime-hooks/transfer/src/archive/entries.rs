//! Reads the entries of an untrusted tar, in bounded memory: regular files and directories, by
//! names that lead nowhere else.

use std::io::{self, Read};
use std::str;

use tar::{EntryType, Header, PaxExtensions};

use super::refused;

const BLOCK: usize = 512;
/// The most bytes of a record about an entry: a path (PATH_MAX is 4096), extended attributes.
const MOST_EXTENSION: u64 = 1 << 20;
/// Ten times the entries of the largest checkpoint.
const MOST_ENTRIES: usize = 200_000;
/// Engines' archives have three levels.
const DEEPEST: usize = 16;

/// The entries; the contents of each are read after it.
pub(crate) struct Entries<R> {
    inner: R,
    /// Contents that have not been read yet.
    left: u64,
    padding: u64,
    seen: usize,
}

/// An entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The path below the directory into which it is unpacked.
    pub(crate) name: String,
    pub(crate) what: What,
    /// Its length.
    pub(crate) bytes: u64,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    File,
    Directory,
}

/// Fields from records before the header of an entry (pax(1), and GNU's long names).
#[derive(Default)]
struct Said {
    name: Option<Vec<u8>>,
    bytes: Option<u64>,
}

impl<R: Read> Entries<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            left: 0,
            padding: 0,
            seen: 0,
        }
    }

    /// Returns the next entry but the directory itself; skips unread contents of the one before.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut said = Said::default();
        while let Some(header) = self.header()? {
            let header = Header::from_byte_slice(&header);
            let bytes = header.entry_size()?;
            match header.entry_type() {
                EntryType::XHeader => said.read_pax(&self.extension(bytes)?)?,
                EntryType::XGlobalHeader => drop(self.extension(bytes)?),
                EntryType::GNULongName => said.name = Some(until_nul(self.extension(bytes)?)),
                kind => {
                    let Said { name, bytes: own } = std::mem::take(&mut said);
                    let name = name.unwrap_or_else(|| header.path_bytes().into_owned());
                    let entry = entry(&name, kind, own.unwrap_or(bytes))?;
                    self.expect(entry.bytes);
                    if !entry.name.is_empty() {
                        return Ok(Some(entry));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads the next header; `None` at the end.
    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let rest = self.left + self.padding;
        if io::copy(&mut self.inner.by_ref().take(rest), &mut io::sink())? < rest {
            return Err(refused("it is cut off"));
        }
        self.expect(0);
        self.seen += 1;
        if self.seen > MOST_ENTRIES {
            return Err(refused(format!("it has more than {MOST_ENTRIES} entries")));
        }
        let mut header = [0; BLOCK];
        self.inner.read_exact(&mut header).map_err(cut_off)?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut right = Header::from_byte_slice(&header).clone();
        right.set_cksum();
        match Header::from_byte_slice(&header).cksum()? == right.cksum()? {
            true => Ok(Some(header)),
            false => Err(refused("it is no tar, or damaged")),
        }
    }

    fn extension(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        if bytes > MOST_EXTENSION {
            return Err(refused("it says more of an entry than there is to say"));
        }
        self.expect(bytes);
        let mut text = Vec::new();
        self.read_to_end(&mut text)?;
        Ok(text)
    }

    fn expect(&mut self, bytes: u64) {
        self.left = bytes;
        self.padding = bytes.next_multiple_of(BLOCK as u64) - bytes;
    }
}

impl<R: Read> Read for Entries<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.by_ref().take(self.left).read(into)?;
        if read == 0 && self.left > 0 && !into.is_empty() {
            return Err(refused("it is cut off"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl Said {
    fn read_pax(&mut self, text: &[u8]) -> io::Result<()> {
        for said in PaxExtensions::new(text) {
            let said = said?;
            match said.key_bytes() {
                b"path" => self.name = Some(said.value_bytes().to_vec()),
                b"size" => {
                    let bytes = said.value().ok().and_then(|bytes| bytes.parse().ok());
                    self.bytes = Some(bytes.ok_or_else(|| refused("a length is no number"))?);
                }
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(refused("it has files with holes, which no engine packs"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn entry(name: &[u8], kind: EntryType, bytes: u64) -> io::Result<Entry> {
    let name = plain(name)?;
    let what = match kind {
        EntryType::Regular | EntryType::Continuous => What::File,
        EntryType::Directory => What::Directory,
        other => return Err(refused(format!("{name:?} is no file: {other:?}"))),
    };
    if what == What::File && name.is_empty() {
        return Err(refused("a file has no name"));
    }
    // No tar is as long; additions to this length do not overflow.
    if bytes > i64::MAX as u64 {
        return Err(refused(format!("{name:?} has no possible length")));
    }
    let bytes = if what == What::File { bytes } else { 0 };
    Ok(Entry { name, what, bytes })
}

/// Returns the name without empty parts and dots.
fn plain(name: &[u8]) -> io::Result<String> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    let leads_away = || refused(format!("{:?} leads out of it", shown()));
    let text = str::from_utf8(name).map_err(|_| refused(format!("{:?} is no text", shown())))?;
    if text.starts_with('/') || text.contains('\0') {
        return Err(leads_away());
    }
    let is_said = |part: &&str| !part.is_empty() && *part != ".";
    let parts: Vec<&str> = text.split('/').filter(is_said).collect();
    if parts.contains(&"..") || parts.len() > DEEPEST {
        return Err(leads_away());
    }
    Ok(parts.join("/"))
}

fn until_nul(mut name: Vec<u8>) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == 0);
    name.truncate(end.unwrap_or(name.len()));
    name
}

fn cut_off(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => refused("it is cut off"),
        _ => error,
    }
}
