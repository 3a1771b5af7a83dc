//! The form of an index: a header, then the body as borsh writes it. All numbers are little-endian,
//! fields come in the order of the types, each list after its length. Nothing is allocated for a
//! length that exceeds the remaining bytes.

use std::path::Path;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::chunk::stored_pages::WORDS;
use crate::index::limits;
use crate::{Index, StoreError};

const MAGIC: &[u8; 8] = b"STASISMM";
/// In earlier versions an area could be memory that CRIU restores, and the plugin filled.
pub(crate) const VERSION: u32 = 3;
/// The bytes before the body.
pub(crate) const HEADER: usize = 8 + 4 + 4 + 8 + 32;

const PACK: usize = 16 + 2 + 8;
/// A process without its areas.
const PROCESS: usize = 4 + 4;
/// An area without its chunks.
const AREA: usize = 8 + 8 + 4;
/// A chunk with all of its pages.
const CHUNK: usize = 4 + 2 + 16 + 4 + 8 + 4 + 1;

/// The bytes before the body.
#[derive(BorshSerialize, BorshDeserialize)]
struct Header {
    magic: [u8; 8],
    version: u32,
    reserved: u32,
    /// Length of the body.
    bytes: u64,
    /// Hash of the body: BLAKE3.
    hash: [u8; 32],
}

pub(crate) fn encode(index: &Index) -> Vec<u8> {
    seal(&written(index))
}

/// Encodes a value. This fails only for a list that is too long to be read again.
pub(crate) fn written(value: &impl BorshSerialize) -> Vec<u8> {
    borsh::to_vec(value).unwrap_or_default()
}

/// The most bytes of an index that has the same areas and chunks in `packs` packs.
pub(crate) fn most_bytes(index: &Index, packs: usize) -> u64 {
    let areas = index.areas().count();
    let chunks: usize = index.areas().map(|area| area.chunks.len()).sum();
    let lists = packs * PACK + index.processes.len() * PROCESS + areas * AREA;
    let bitmap = WORDS * 8;
    (HEADER + 16 + 1 + 4 + 4 + lists + chunks * (CHUNK + bitmap)) as u64
}

/// Puts a header before a body.
pub(crate) fn seal(body: &[u8]) -> Vec<u8> {
    let header = Header {
        magic: *MAGIC,
        version: VERSION,
        reserved: 0,
        bytes: body.len() as u64,
        hash: blake3::hash(body).into(),
    };
    [&written(&header), body].concat()
}

pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Index, StoreError> {
    let damaged = |what: String| StoreError::damaged(path, what);
    let mut body = bytes;
    let header = Header::deserialize(&mut body).map_err(|error| damaged(error.to_string()))?;
    if header.magic != *MAGIC {
        return Err(damaged("it is not an index of memory".to_owned()));
    }
    if header.version != VERSION {
        return Err(StoreError::Version {
            path: path.to_owned(),
            found: header.version,
            known: VERSION,
        });
    }
    check(&header, body).map_err(damaged)?;
    let index: Index = borsh::from_slice(body).map_err(|error| damaged(error.to_string()))?;
    limits::check(&index).map_err(damaged)?;
    Ok(index)
}

fn check(header: &Header, body: &[u8]) -> Result<(), String> {
    if header.reserved != 0 {
        return Err("its header has a number that has to be 0".to_owned());
    }
    if header.bytes != body.len() as u64 {
        let (said, there) = (header.bytes, body.len());
        return Err(format!("it says to have {said} bytes and has {there}"));
    }
    match blake3::hash(body) == blake3::Hash::from_bytes(header.hash) {
        true => Ok(()),
        false => Err("its contents do not match their hash".to_owned()),
    }
}
