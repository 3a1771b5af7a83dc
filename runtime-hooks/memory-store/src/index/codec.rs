//! How an index is written. All numbers are little-endian.
//!
//! A header (magic, version, a reserved word, length and BLAKE3 hash of the body), then the body:
//! fields in the order of the types, each list after its length. A length is checked against the
//! bytes that are left before anything is allocated for it.

use std::path::Path;

use crate::chunk::stored_pages::WORDS;
use crate::index::limits;
use crate::{
    Area, Checksum, Chunk, Encoding, ImageId, Index, Pack, PacksIn, Place, ProcessMemory,
    StoreError, StoredPages,
};

const MAGIC: &[u8; 8] = b"STASISMM";
/// In earlier versions an area could be memory that CRIU restores, and the plugin filled.
pub(crate) const VERSION: u32 = 3;
/// Length of what is before the body.
pub(crate) const HEADER: usize = 8 + 4 + 4 + 8 + 32;

const PACK: usize = 16 + 2 + 8;
/// Without its areas.
const PROCESS: usize = 4 + 4;
/// Without its chunks.
const AREA: usize = 8 + 8 + 4;
/// One with all of its pages.
const CHUNK: usize = 4 + 2 + 16 + PLACE;
const PLACE: usize = 4 + 8 + 4 + 1;

pub(crate) fn encode(index: &Index) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(index.image_id.number().to_le_bytes());
    body.push(match index.packs_in {
        PacksIn::Image => 0,
        PacksIn::Directory => 1,
    });
    put_list(&mut body, &index.packs, put_pack);
    put_list(&mut body, &index.processes, |body, process| {
        body.extend(process.pid.to_le_bytes());
        put_list(body, &process.areas, |body, area| {
            body.extend(area.start.to_le_bytes());
            body.extend(area.bytes.to_le_bytes());
            put_list(body, &area.chunks, put_chunk);
        });
    });
    seal(&body)
}

/// How long an index is at most that has the same areas and chunks in so many packs.
pub(crate) fn most_bytes(index: &Index, packs: usize) -> u64 {
    let areas = index.areas().count();
    let chunks: usize = index.areas().map(|area| area.chunks.len()).sum();
    let lists = packs * PACK + index.processes.len() * PROCESS + areas * AREA;
    let bitmap = WORDS * 8;
    (HEADER + 16 + 1 + 4 + 4 + lists + chunks * (CHUNK + bitmap)) as u64
}

/// A body with its header.
pub(crate) fn seal(body: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER + body.len());
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend([0; 4]);
    file.extend((body.len() as u64).to_le_bytes());
    file.extend(blake3::hash(body).as_bytes());
    file.extend(body);
    file
}

fn put_list<T>(body: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    // A longer one would not be decoded, nor does it fit into memory.
    let length = u32::try_from(list.len()).unwrap_or(u32::MAX);
    body.extend(length.to_le_bytes());
    list.iter().for_each(|each| put(body, each));
}

fn put_pack(body: &mut Vec<u8>, pack: &Pack) {
    body.extend(pack.creator.number().to_le_bytes());
    body.extend(pack.stream.to_le_bytes());
    body.extend(pack.bytes.to_le_bytes());
}

fn put_chunk(body: &mut Vec<u8>, chunk: &Chunk) {
    body.extend(chunk.number.to_le_bytes());
    match &chunk.pages {
        StoredPages::All(pages) => body.extend(pages.to_le_bytes()),
        StoredPages::Some(bits) => {
            body.extend([0; 2]);
            bits.iter().for_each(|word| body.extend(word.to_le_bytes()));
        }
    }
    body.extend(chunk.checksum.0.to_le_bytes());
    let place = &chunk.place;
    body.extend(place.pack.to_le_bytes());
    body.extend(place.offset.to_le_bytes());
    body.extend(place.bytes.to_le_bytes());
    body.push(number(place.encoding));
}

/// The number that [`Input::encoding`] reads.
pub(crate) fn number(encoding: Encoding) -> u8 {
    match encoding {
        Encoding::Raw => 0,
        Encoding::Zstd => 1,
    }
}

pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Index, StoreError> {
    let damaged = |what: String| StoreError::damaged(path, what);
    let mut input = Input(bytes);
    let magic = input.take::<8>().map_err(damaged)?;
    if magic != *MAGIC {
        return Err(damaged("it is not an index of memory".to_owned()));
    }
    let version = input.u32().map_err(damaged)?;
    if version != VERSION {
        return Err(StoreError::Version {
            path: path.to_owned(),
            found: version,
            known: VERSION,
        });
    }
    let index = decode_body(input).map_err(damaged)?;
    limits::check(&index).map_err(damaged)?;
    Ok(index)
}

/// What follows the version.
fn decode_body(mut input: Input<'_>) -> Result<Index, String> {
    if input.u32()? != 0 {
        return Err("its header has a number that has to be 0".to_owned());
    }
    let length = input.u64()?;
    let hash = blake3::Hash::from_bytes(input.take()?);
    if length != input.0.len() as u64 {
        let there = input.0.len();
        return Err(format!("it says to have {length} bytes and has {there}"));
    }
    if blake3::hash(input.0) != hash {
        return Err("its contents do not match their hash".to_owned());
    }
    let index = Index {
        image_id: ImageId::new(input.u128()?),
        packs_in: match input.u8()? {
            0 => PacksIn::Image,
            1 => PacksIn::Directory,
            other => return Err(format!("its packs lie in place {other}, which is unknown")),
        },
        packs: input.list(PACK, pack)?,
        processes: input.list(PROCESS, process)?,
    };
    match input.0.len() {
        0 => Ok(index),
        more => Err(format!("there are {more} bytes after its end")),
    }
}

fn pack(input: &mut Input<'_>) -> Result<Pack, String> {
    Ok(Pack {
        creator: ImageId::new(input.u128()?),
        stream: input.u16()?,
        bytes: input.u64()?,
    })
}

fn process(input: &mut Input<'_>) -> Result<ProcessMemory, String> {
    Ok(ProcessMemory {
        pid: i32::from_le_bytes(input.take()?),
        areas: input.list(AREA, area)?,
    })
}

fn area(input: &mut Input<'_>) -> Result<Area, String> {
    Ok(Area {
        start: input.u64()?,
        bytes: input.u64()?,
        chunks: input.list(CHUNK, chunk)?,
    })
}

fn chunk(input: &mut Input<'_>) -> Result<Chunk, String> {
    Ok(Chunk {
        number: input.u32()?,
        pages: match input.u16()? {
            0 => {
                let mut bits = Box::new([0; WORDS]);
                for word in bits.iter_mut() {
                    *word = input.u64()?;
                }
                StoredPages::Some(bits)
            }
            all => StoredPages::All(all),
        },
        checksum: Checksum(input.u128()?),
        place: Place {
            pack: input.u32()?,
            offset: input.u64()?,
            bytes: input.u32()?,
            encoding: input.encoding()?,
        },
    })
}

/// What is left to be read.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("it ends too early")?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, String> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, String> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, String> {
        self.take().map(u128::from_le_bytes)
    }

    pub(crate) fn encoding(&mut self) -> Result<Encoding, String> {
        match self.u8()? {
            0 => Ok(Encoding::Raw),
            1 => Ok(Encoding::Zstd),
            other => Err(format!("encoding {other} is unknown")),
        }
    }

    /// A list of what needs at least `least` bytes each.
    pub(crate) fn list<T>(
        &mut self,
        least: usize,
        read: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let length = usize::try_from(self.u32()?).map_err(|error| error.to_string())?;
        if length > self.0.len() / least {
            let left = self.0.len();
            return Err(format!("{left} bytes are left for a list of {length}"));
        }
        let mut list = Vec::with_capacity(length);
        for _ in 0..length {
            list.push(read(self)?);
        }
        Ok(list)
    }
}
