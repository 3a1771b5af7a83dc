//! What a process was started with. The kernel keeps that in the process's own memory, so it is
//! where the image has that page: `mm-PID.img`, `pagemap-PID.img` and `pages-ID.img` (CRIU's
//! images/mm.proto, pagemap.proto).

use prost::Message;

use super::files::text;
use super::{ContentsError, Files};
use crate::image::criu_file::Entries;

/// Those of the files (criu/include/magic.h).
const MM_MAGIC: u32 = 0x5749_2820;
const PAGEMAP_MAGIC: u32 = 0x5608_4025;
const PAGE: u64 = 4096;
/// `PE_PRESENT`: the page is in the file of pages (criu/include/pagemap.h).
const PRESENT: u32 = 1 << 2;
/// No more of it is shown.
const MAX_BYTES: u64 = 4096;

/// `mm_entry`, as far as it is needed.
#[derive(Message)]
struct MmEntry {
    #[prost(uint64, required, tag = "8")]
    arg_start: u64,
    #[prost(uint64, required, tag = "9")]
    arg_end: u64,
}

/// `pagemap_head`.
#[derive(Message)]
struct PagemapHead {
    #[prost(uint32, required, tag = "1")]
    pages_id: u32,
}

/// `pagemap_entry`.
#[derive(Message)]
struct PagemapEntry {
    #[prost(uint64, required, tag = "1")]
    start: u64,
    #[prost(uint32, required, tag = "2")]
    compat_pages: u32,
    #[prost(bool, optional, tag = "3")]
    in_parent: Option<bool>,
    #[prost(uint32, optional, tag = "4")]
    flags: Option<u32>,
    #[prost(uint64, optional, tag = "5")]
    pages: Option<u64>,
}

impl PagemapEntry {
    fn bytes(&self) -> u64 {
        let pages = self.pages.unwrap_or(self.compat_pages.into());
        pages.saturating_mul(PAGE)
    }

    fn is_present(&self) -> bool {
        let flag = self.flags.map(|flags| flags & PRESENT != 0);
        flag.unwrap_or(self.in_parent != Some(true))
    }
}

/// The arguments of a process; none where the image does not have them: of a zombie, of memory that
/// is in an earlier image, of a program that wrote over them.
pub(super) fn read(files: &Files, pid: u32) -> Result<Vec<String>, ContentsError> {
    let Some(mm) = files.first::<MmEntry>(&format!("mm-{pid}.img"), MM_MAGIC)? else {
        return Ok(Vec::new());
    };
    let bytes = mm.arg_end.saturating_sub(mm.arg_start).min(MAX_BYTES);
    let pagemap_name = format!("pagemap-{pid}.img");
    let Some(pagemap) = files.read(&pagemap_name)? else {
        return Ok(Vec::new());
    };
    let place = find(&pagemap, mm.arg_start, bytes);
    let place = place.map_err(|what| files.malformed(&pagemap_name, what))?;
    let Some(Place {
        pages_id,
        offset,
        bytes,
    }) = place
    else {
        return Ok(Vec::new());
    };
    let pages = format!("pages-{pages_id}.img");
    if !files.names().contains_key(&pages) {
        return Ok(Vec::new());
    }
    Ok(arguments(&files.read_at(&pages, offset, bytes)?))
}

/// Where the first bytes of a piece of memory are.
struct Place {
    pages_id: u32,
    offset: u64,
    /// As many as lie there side by side.
    bytes: usize,
}

/// `None`: the image has nothing at that address.
fn find(pagemap: &[u8], start: u64, bytes: u64) -> Result<Option<Place>, String> {
    let mut entries = Entries::<PagemapHead>::of(pagemap, PAGEMAP_MAGIC)?;
    let Some(head) = entries.next().transpose()? else {
        return Ok(None);
    };
    let mut offset = 0_u64;
    for entry in entries.then::<PagemapEntry>() {
        let entry = entry?;
        let into = start
            .checked_sub(entry.start)
            .filter(|into| *into < entry.bytes());
        if let Some(into) = into.filter(|_| entry.is_present()) {
            let bytes = bytes.min(entry.bytes() - into);
            return Ok(Some(Place {
                pages_id: head.pages_id,
                offset: offset.saturating_add(into),
                bytes: usize::try_from(bytes).unwrap_or_default(),
            }));
        }
        if entry.is_present() {
            offset = offset.saturating_add(entry.bytes());
        }
    }
    Ok(None)
}

/// Each ends with a zero byte.
fn arguments(bytes: &[u8]) -> Vec<String> {
    let whole = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if whole.is_empty() {
        return Vec::new();
    }
    let arguments = whole.split(|byte| *byte == 0);
    arguments
        .map(|argument| text(argument, argument.len()))
        .collect()
}
