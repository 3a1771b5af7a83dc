//! Where the bulk memory of a checkpoint is kept.
//!
//! Memory is stored in *chunks* of at most 4 MiB, without their zero pages, each with a checksum. Chunks lie in *packs*, files that one
//! thread each writes; the *index* says which chunk of which process is where. Images are untrusted: an index is
//! checked against its limits before anything is made of it, and no path is taken from it.

mod area;
mod buffer;
mod checksum;
mod codec;
mod compress;
mod directory;
mod durable;
mod earlier;
mod error;
mod huge_pages;
mod image_id;
mod index;
mod lane;
mod limits;
mod mapping;
mod order;
mod pack;
mod pack_writer;
mod page_cache;
mod reader;
#[cfg(test)]
mod samples;
mod stored_pages;
mod writer;

pub use area::{Area, Chunk, Encoding, Place, ProcessMemory};
pub use buffer::Buffer;
pub use checksum::Checksum;
pub use directory::{Stored, discard, list, remove};
pub use error::StoreError;
pub use image_id::ImageId;
pub use index::Index;
pub use lane::{Lane, LaneReport};
pub use order::{After, Compression, DumpOrder, ORDER_VARIABLE, Report, RestoreOrder, Tier};
pub use pack::Pack;
pub use reader::{Loaded, Reader};
pub use stored_pages::{Run, StoredPages};
pub use writer::Writer;

/// The unit of memory, bytes. The kernel's page size on the machines that we support (not 64 KiB aarch64).
pub const PAGE: usize = 4096;
/// What is read, hashed and stored in one go, bytes; counted from the start of an area.
pub const CHUNK: usize = 4 << 20;
/// The index, in the image directory.
pub const INDEX_FILE: &str = "stasis-memory.index";
/// The same index, in a store directory.
pub const STORE_INDEX_FILE: &str = "index";
