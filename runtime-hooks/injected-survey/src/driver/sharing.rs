//! The calls that copy, and that map memory of other processes.

use core::ffi::{c_int, c_void};

use super::{DEVICES, Driver, Failed, Location, Result};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: c_int = 3;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access {
    pub(crate) location: Location,
    pub(crate) flags: c_int,
}

/// How stream captures of the program see the thread's calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaptureMode(c_int);

impl CaptureMode {
    /// The calls are allowed, and spoil no capture.
    pub(crate) const RELAXED: Self = Self(RELAXED);
}

impl Driver<'_> {
    /// Sets the mode, and returns the earlier one.
    pub(crate) fn exchange_capture_mode(self, mode: CaptureMode) -> Result<CaptureMode> {
        let mut mode = mode.0;
        call!(self, 15, (&mut c_int), &mut mode).map(|()| CaptureMode(mode))
    }

    /// Copies the first 16 bytes, which the thread's context can read.
    pub(crate) fn copied_from(self, address: u64) -> Result<[u64; 2]> {
        let mut words = [0; 2];
        let bytes = size_of_val(&words);
        call!(
            self,
            16,
            (&mut [u64; 2], u64, usize),
            &mut words,
            address,
            bytes
        )
        .map(|()| words)
    }

    /// Copies 16 bytes; they are in place when it returns, also for other processes. Without the
    /// cuCtxSynchronize a copy from memory that is not pinned may still be on its way (CUDA driver
    /// API, "API synchronization behavior"; seen on an H200).
    pub(crate) fn copy_to(self, address: u64, words: [u64; 2]) -> Result<()> {
        let bytes = size_of_val(&words);
        call!(self, 17, (u64, &[u64; 2], usize), address, &words, bytes)?;
        call!(self, 25, (),)
    }

    /// Reserves addresses without memory. The caller must free them.
    pub(crate) fn reserve(self, bytes: u64) -> Result<u64> {
        let mut address = 0;
        call!(
            self,
            18,
            (&mut u64, u64, usize, u64, u64),
            &mut address,
            bytes,
            0,
            0,
            0
        )
        .map(|()| address)
    }

    pub(crate) fn give_back(self, address: u64, bytes: u64) -> Result<()> {
        call!(self, 19, (u64, u64), address, bytes)
    }

    pub(crate) fn map(self, address: u64, bytes: u64, handle: u64) -> Result<()> {
        call!(
            self,
            20,
            (u64, u64, usize, u64, u64),
            address,
            bytes,
            0,
            handle,
            0
        )
    }

    pub(crate) fn unmap(self, address: u64, bytes: u64) -> Result<()> {
        call!(self, 21, (u64, u64), address, bytes)
    }

    /// Gives the devices of these bits access to read and write.
    pub(crate) fn set_access(self, address: u64, bytes: u64, devices: u64) -> Result<()> {
        let mut all = [Access::default(); DEVICES];
        let mut count = 0_usize;
        let wanted = (0..).take(DEVICES);
        let wanted = wanted.filter(|device| devices & 1_u64 << device != 0);
        for (place, device) in all.iter_mut().zip(wanted) {
            *place = Access {
                location: Location::of_device(device),
                flags: READ_WRITE,
            };
            count += 1;
        }
        call!(
            self,
            22,
            (u64, u64, &[Access; DEVICES], usize),
            address,
            bytes,
            &all,
            count
        )
    }

    /// Makes a descriptor, which the caller must close.
    pub(crate) fn export(self, handle: u64) -> Result<u64> {
        let mut file: c_int = -1;
        call!(
            self,
            23,
            (&mut c_int, u64, c_int, u64),
            &mut file,
            handle,
            FILE,
            0
        )
        .map(|()| u64::from(file.cast_unsigned()))
    }

    /// Makes a handle, which the caller must release. The descriptor stays the caller's.
    pub(crate) fn import(self, file: u64) -> Result<u64> {
        let mut handle = 0;
        call!(
            self,
            24,
            (&mut u64, *mut c_void, c_int),
            &mut handle,
            file as *mut c_void,
            FILE
        )
        .map(|()| handle)
    }
}
