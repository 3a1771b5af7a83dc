//! Where the bulk memory of a checkpoint is kept.
//!
//! Memory is stored in *chunks* of at most 4 MiB, without their zero pages, each with a checksum. Chunks lie in *packs*, files that one
//! thread each writes; the *index* says which chunk of which process is where. Images are untrusted: an index is
//! checked against its limits before anything is made of it, and no path is taken from it.

mod area;
mod image_id;
mod order;

pub use area::{Area, Checksum, Chunk, Encoding, Place, ProcessMemory, StoredPages};
pub use image_id::ImageId;
pub use order::{After, Compression, DumpOrder, ORDER_VARIABLE, Report, RestoreOrder, Tier};

/// The unit of memory, bytes. The kernel's page size on the machines that we support (not 64 KiB aarch64).
pub const PAGE: usize = 4096;
/// What is read, hashed and stored in one go, bytes; counted from the start of an area.
pub const CHUNK: usize = 4 << 20;
/// The index, in the image directory.
pub const INDEX_FILE: &str = "stasis-memory.index";
