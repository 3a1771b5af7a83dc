//! Calls of libcuda, by their addresses. Declarations as in cuda.h 12.8 to 13.5; a device's number
//! (`CUdevice`) is its ordinal.
#![allow(unsafe_code)] // foreign functions

use core::ffi::{c_int, c_uint};

/// Devices are asked about up to this one; no machine has more GPUs.
pub const DEVICES: usize = 16;

/// The calls, in the order of their addresses in a request, by the names that libcuda has for them.
pub const FUNCTIONS: [&str; 26] = [
    "cuMemRetainAllocationHandle",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemRelease",
    "cuMemGetAddressRange_v2",
    "cuPointerGetAttribute",
    "cuMemGetAccess",
    "cuMemPoolGetAccess",
    "cuDeviceGetCount",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxEnablePeerAccess",
    "cuCtxDisablePeerAccess",
    "cuThreadExchangeStreamCaptureMode",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuCtxSynchronize",
];

/// The other failures, numbered behind [`FUNCTIONS`].
const OTHERS: [&str; 8] = [
    "socketpair(2)",
    "recvmsg(2)",
    "close(2)",
    "the primary context of a device",
    "access that is not to read and write",
    "references without end",
    "contents that cannot be put back",
    "a handle whose value does not stay",
];

/// A failure that is not of a function of libcuda's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Other {
    /// The result is an errno, as for the next two.
    SocketPair,
    /// No message has come, or a descriptor is missing.
    Receive,
    /// A descriptor may still be open.
    Close,
    /// The process lacks a context that the request names.
    Context,
    /// The access could not be given again. The result is its flags.
    Access,
    /// An allocation was released again and again.
    References,
    /// GPU memory has a tag of ours. The result is a `CUresult`.
    PutBack,
    /// libcuda does not allocate handles as it is known to.
    Handle,
}

impl Other {
    /// Returns the number of this failure.
    #[must_use]
    pub const fn number(self) -> u64 {
        FUNCTIONS.len() as u64 + self as u64
    }

    /// Makes the failure with this result.
    pub(crate) fn failed(self, result: c_int) -> Failed {
        Failed {
            call: self.number(),
            result,
        }
    }
}

/// Returns the name of a failed call, by its number.
#[must_use]
pub fn name_of(number: u64) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    FUNCTIONS.iter().chain(&OTHERS).nth(number).copied()
}

/// A call that has failed: its position in [`FUNCTIONS`] or behind, and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) call: u64,
    pub(crate) result: c_int,
}

pub(crate) type Result<T> = core::result::Result<T, Failed>;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

impl Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub(crate) fn of_device(device: c_int) -> Self {
        Self {
            kind: 1,
            id: device,
        }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Properties {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
    pub(crate) others: [u64; 2],
}

/// `CUpointer_attribute`.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(crate) enum Attribute {
    MemoryType = 2,
    IsManaged = 8,
    IsLegacyIpcCapable = 10,
    Pool = 17,
}

/// libcuda, in the process of the thread.
#[derive(Clone, Copy)]
pub(crate) struct Driver<'a>(&'a [u64; FUNCTIONS.len()]);

/// Calls the function at that position, of that type.
macro_rules! call {
    ($driver:ident, $position:literal, ($($type:ty),*), $($argument:expr),*) => {{
        // SAFETY: the request has the address of the function that is declared so.
        let function: extern "C" fn($($type),*) -> c_int = unsafe { core::mem::transmute($driver.0[$position]) };
        match function($($argument),*) {
            0 => Ok(()),
            result => Err(Failed { call: $position, result }),
        }
    }};
}

mod sharing;

#[cfg(test)]
pub(crate) use sharing::Access;
pub(crate) use sharing::{CaptureMode, READ_WRITE};

impl<'a> Driver<'a> {
    /// # Safety
    /// These are the addresses of [`FUNCTIONS`], in a process and on a thread that may call them.
    pub(crate) unsafe fn new(functions: &'a [u64; FUNCTIONS.len()]) -> Self {
        Self(functions)
    }

    /// Returns the handle of the memory mapped at an address. The caller must release it.
    pub(crate) fn retain_handle(self, address: u64) -> Result<u64> {
        let mut handle = 0;
        call!(self, 0, (&mut u64, u64), &mut handle, address).map(|()| handle)
    }

    pub(crate) fn properties(self, handle: u64) -> Result<Properties> {
        let mut properties = Properties::default();
        call!(self, 1, (&mut Properties, u64), &mut properties, handle).map(|()| properties)
    }

    pub(crate) fn release_handle(self, handle: u64) -> Result<()> {
        call!(self, 2, (u64), handle)
    }

    /// Returns begin and length of the allocation or mapping that an address is in.
    pub(crate) fn address_range(self, address: u64) -> Result<(u64, u64)> {
        let (mut start, mut length) = (0, 0);
        let types = call!(
            self,
            3,
            (&mut u64, &mut u64, u64),
            &mut start,
            &mut length,
            address
        );
        types.map(|()| (start, length))
    }

    /// Reads an attribute. None that is asked for has more than a word.
    pub(crate) fn attribute(self, attribute: Attribute, address: u64) -> Result<u64> {
        let mut value = 0;
        let attribute = attribute as c_int;
        call!(
            self,
            4,
            (&mut u64, c_int, u64),
            &mut value,
            attribute,
            address
        )
        .map(|()| value)
    }

    /// Returns `CUmemAccess_flags`: 0 is no access.
    pub(crate) fn access(self, location: Location, address: u64) -> Result<u64> {
        let mut flags = 0;
        call!(
            self,
            5,
            (&mut u64, &Location, u64),
            &mut flags,
            &location,
            address
        )
        .map(|()| flags)
    }

    /// Returns the same flags of a memory pool.
    pub(crate) fn pool_access(self, pool: u64, location: Location) -> Result<u32> {
        let mut flags = 0;
        call!(
            self,
            6,
            (&mut u32, u64, &Location),
            &mut flags,
            pool,
            &location
        )
        .map(|()| flags)
    }

    pub(crate) fn device_count(self) -> Result<c_int> {
        let mut count = 0;
        call!(self, 7, (&mut c_int), &mut count).map(|()| count)
    }

    pub(crate) fn has_primary_context(self, device: c_int) -> Result<bool> {
        let (mut flags, mut is_active): (c_uint, c_int) = (0, 0);
        call!(
            self,
            8,
            (c_int, &mut c_uint, &mut c_int),
            device,
            &mut flags,
            &mut is_active
        )
        .map(|()| is_active != 0)
    }

    /// Returns a primary context, which the caller must release.
    pub(crate) fn retain_context(self, device: c_int) -> Result<u64> {
        let mut context = 0;
        call!(self, 9, (&mut u64, c_int), &mut context, device).map(|()| context)
    }

    pub(crate) fn release_context(self, device: c_int) -> Result<()> {
        call!(self, 10, (c_int), device)
    }

    /// Makes a context the thread's, until [`Self::pop`].
    pub(crate) fn push(self, context: u64) -> Result<()> {
        call!(self, 11, (u64), context)
    }

    pub(crate) fn pop(self) -> Result<()> {
        let mut context = 0;
        call!(self, 12, (&mut u64), &mut context)
    }

    /// Enables peer access of the thread's context to this one.
    pub(crate) fn enable_peer_access(self, to: u64) -> Result<()> {
        call!(self, 13, (u64, c_uint), to, 0)
    }

    pub(crate) fn disable_peer_access(self, to: u64) -> Result<()> {
        call!(self, 14, (u64), to)
    }
}
