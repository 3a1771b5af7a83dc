//! The store for the bulk memory of a checkpoint, and the protocol of engine and CRIU plugin.
//!
//! # The store
//! Memory is stored in *chunks* of at most 4 MiB ([`Chunk`]), without their zero pages, each with a
//! checksum. Chunks lie in *packs* ([`Pack`]), files that one thread each writes; the *index*
//! ([`Index`]) has each chunk's place. Packs lie in the image directory or in a directory of their
//! own ([`PacksIn`]), which is of one image alone.
//!
//! * Writing: [`Writer`] makes the store of one checkpoint.
//! * Reading: [`Reader`] opens the packs of an index, [`Reader::load`] reads the pages of a chunk.
//! * Contents in files in memory ([`FileContents`]): [`Writer::store_coming`] and
//!   [`Reader::load_files`], by many threads. Contents that are in a pack from the beginning
//!   ([`create_pack`]) are not copied: [`Reader::in_place`].
//! * Moving: a [`Plan`] puts the memory of an image into blobs for a registry, which are the packs
//!   of the image that is pulled; and large files of CRIU ([`split_files`], [`write_files`]).
//! * An image that is being pulled ([`Arriving`]): its readers wait for the part that they need.
//! * Managing: [`list`], [`remove`], [`discard`].
//!
//! Images are not trusted: an index is checked against its limits before anything is made of it,
//! and no path is taken from it.
//!
//! # The protocol
//! The engine describes a dump or restore to the CRIU plugin by a file ([`DumpRequest`],
//! [`RestoreRequest`]) that an environment variable of CRIU names ([`REQUEST_VARIABLE`]): see
//! `protocol.rs`.

mod arriving;
mod blob;
mod chunk;
mod directory;
mod error;
mod file_contents;
mod image_id;
mod index;
#[cfg(test)]
#[path = "../../../integration/src/check/left_out.rs"]
mod left_out;
mod pack;
mod protocol;
mod reader;
#[cfg(test)]
#[path = "tests/test_data.rs"]
mod test_data;
mod write;

pub use arriving::{ARRIVING_FILE, Arrived, Arriving, Fetched, Fetching, refuse_arriving};
pub use blob::contents::{
    BlobContents, Content, ContentHash, MOST_CONTENTS_BYTES, decode as decode_contents,
    encode as encode_contents,
};
pub use blob::files::{LargeFile, split_files};
pub use blob::gather::{Gathered, NewBlobs, Plan};
pub use blob::split::{BlobsOf, Lengths};
pub use blob::write_files::{refuse_other_files, write_files};
pub use blob::{BlobDigest, MOST_BLOB_BYTES, pack_header, pack_of};
pub use chunk::buffer::Buffer;
pub use chunk::checksum::Checksum;
pub use chunk::stored_pages::{Run, StoredPages};
pub use directory::{Stored, discard, list, remove};
pub use error::StoreError;
pub use file_contents::FileContents;
pub use image_id::ImageId;
pub use index::Index;
pub use index::area::{Area, Chunk, ChunkLocation, Encoding, ProcessMemory};
pub use index::find::ImagePlace;
pub use pack::mapping::is_in_memory;
pub use pack::{Pack, is_pack_name};
pub use protocol::{
    DumpRequest, Holes, PacksIn, REQUEST_VARIABLE, RestoreRequest, StoreStatistics,
};
pub use reader::progress::LoadProgress;
pub use reader::{Loaded, Reader, verify_past_cache};
pub use write::Writer;
pub use write::early_checksums::EarlyChecksums;
pub use write::files::Coming;
pub use write::new_pack::{IN_PLACE_OFFSET, create_pack, mount_for_packs};
pub use write::stream::StreamReport;

/// The unit of memory, bytes: the kernel's page size on the machines that we support.
pub const PAGE: usize = 4096;
/// Bytes that are read, hashed and stored in one go; counted from the start of an area.
pub const CHUNK: usize = 4 << 20;
/// The index, in the image directory.
pub const INDEX_FILE: &str = "stasis-memory.index";
/// The same index, in a store directory.
pub const STORE_INDEX_FILE: &str = "index";
/// The engine's record of a checkpoint, in its store directory.
pub const ORIGIN_FILE: &str = "origin.json";
