//! Packs that have contents of a process where another process has put them: the file that the
//! process had mapped is the pack. Nothing is copied, neither into the store nor out of it.

use std::fs::File;
use std::path::Path;

use stasis_linux::file_system::detached::DetachedMount;

use crate::directory;
use crate::pack::writer::{HUGE_PAGE, PackWriter};
use crate::{ImageId, Pack, PacksIn, StoreError};

/// Offset of the contents in such a pack, bytes: its huge pages are huge pages of the contents.
pub const IN_PLACE_OFFSET: u64 = HUGE_PAGE;

/// Makes a directory for such packs, unless it exists, and a mount of it: a process that is to fill
/// a pack gets it through the mount, which is made read-only once the pack is full.
pub fn mount_for_packs(directory: &Path) -> Result<DetachedMount, StoreError> {
    directory::make(directory)?;
    DetachedMount::of(directory).map_err(StoreError::writing(directory))
}

/// Makes a pack with room for `bytes` of contents, in a directory on a tmpfs, which is made unless
/// it exists. [`Writer::store_coming`](crate::Writer::store_coming) finds the pack.
pub fn create_pack(
    directory: &Path,
    image_id: ImageId,
    stream: u16,
    bytes: u64,
) -> Result<File, StoreError> {
    directory::make(directory)?;
    let pack = Pack::new(image_id, stream);
    let pack = PackWriter::create(directory, &pack, PacksIn::Directory)?;
    let pack = pack.pack_file();
    let length = IN_PLACE_OFFSET.saturating_add(bytes.next_multiple_of(HUGE_PAGE));
    let made = pack.file.set_len(length);
    let made = made.and_then(|()| pack.file.try_clone());
    made.map_err(StoreError::writing(&pack.path))
}
