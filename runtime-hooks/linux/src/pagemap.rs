//! `/proc/PID/pagemap`: which pages of a process have contents, and whether other processes share
//! them.

#![allow(unsafe_code)] // FFI: an ioctl

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::libc;

/// `_IOWR('f', 16, struct pm_scan_arg)`, Linux 6.7 (linux/fs.h).
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// A present page that is the kernel's page of zeros.
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// A guard page (MADV_GUARD_INSTALL), since Linux 6.15. Older kernels report it as swapped out.
const PAGE_IS_GUARD: u64 = 1 << 8;

/// In an entry of the file (Documentation/admin-guide/mm/pagemap.rst).
const ENTRY_EXCLUSIVE: u64 = 1 << 56;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_PRESENT: u64 = 1 << 63;

const ENTRY: usize = 8;

/// Bytes; kernels with other pages are not supported.
const PAGE: u64 = 4096;

/// `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `/proc/PID/pagemap`.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// Kinds of pages without contents, as far as this kernel reports them.
    empty: u64,
}

impl Pagemap {
    /// Opens the file of a process.
    ///
    /// # Errors
    /// ENOTTY: this kernel has no PAGEMAP_SCAN (before Linux 6.7). Other I/O errors.
    pub fn open(pid: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        let mut pagemap = Self {
            file,
            empty: PAGE_IS_PFNZERO | PAGE_IS_GUARD,
        };
        if let Err(error) = pagemap.runs(0, PAGE) {
            if error.raw_os_error() != Some(libc::EINVAL) {
                return Err(error);
            }
            pagemap.empty = PAGE_IS_PFNZERO;
        }
        Ok(pagemap)
    }

    /// Start and end addresses of the runs of pages that have contents, in memory or swapped out.
    ///
    /// # Errors
    /// An I/O error.
    pub fn runs(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut regions = [Region::default(); 128];
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut from = start;
        while from < end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start: from,
                end,
                vec: regions.as_mut_ptr().expose_provenance() as u64,
                vec_len: regions.len() as u64,
                category_inverted: self.empty,
                category_mask: self.empty,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                ..Scan::default()
            };
            // SAFETY: the request reads and writes one `struct pm_scan_arg`, and writes at most
            // `vec_len` regions behind `vec`; both are valid for the whole call.
            let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
            let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
            for region in &regions[..found.min(regions.len())] {
                match runs.last_mut() {
                    Some((_, end)) if *end == region.start => *end = region.end,
                    _ => runs.push((region.start, region.end)),
                }
            }
            if scan.walk_end <= from {
                return Err(io::Error::other(
                    "the kernel's scan of pages does not get on",
                ));
            }
            from = scan.walk_end;
        }
        Ok(runs)
    }

    /// Whether any page in this range belongs to another process as well, as after a fork. The
    /// kernel does not say so of pages that are swapped out, so these count as shared.
    ///
    /// # Errors
    /// An I/O error.
    pub fn is_shared(&self, start: u64, end: u64) -> io::Result<bool> {
        let mut entries = vec![0; 64 << 10];
        let mut offset = start / PAGE * ENTRY as u64;
        let last = end / PAGE * ENTRY as u64;
        while offset < last {
            let room = usize::try_from(last - offset).unwrap_or(usize::MAX);
            let part = room.min(entries.len());
            self.file.read_exact_at(&mut entries[..part], offset)?;
            let shared = |entry: u64| {
                entry & ENTRY_SWAPPED != 0
                    || entry & ENTRY_PRESENT != 0 && entry & ENTRY_EXCLUSIVE == 0
            };
            let (values, _) = entries[..part].as_chunks::<ENTRY>();
            if values
                .iter()
                .any(|value| shared(u64::from_ne_bytes(*value)))
            {
                return Ok(true);
            }
            offset += part as u64;
        }
        Ok(false)
    }
}
