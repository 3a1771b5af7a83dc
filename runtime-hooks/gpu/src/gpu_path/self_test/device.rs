//! GPU memory of this process, by the calls that every CUDA program makes.
#![allow(unsafe_code)] // FFI: libcuda

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

use super::pattern::{BYTES, WORDS, words};
use crate::cuda::{CudaError, GpuUuid, OpenError, open_library};

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type GetNumber = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type GetUuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type ToDevice = unsafe extern "C" fn(u64, *const c_void, usize) -> c_int;
type ToHost = unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int;

/// [`BYTES`] of a GPU's memory, which the process has until it ends.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    pub(super) address: u64,
    library: Library,
}

/// An error of using the GPU.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeviceError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("libcuda has no {0}")]
    NoCall(&'static str),
    #[error("{0}")]
    Cuda(&'static str, #[source] CudaError),
    #[error("{0} is not among the GPUs that CUDA offers")]
    NoGpu(GpuUuid),
}

impl DeviceMemory {
    /// Allocates it on this GPU.
    pub(super) fn allocate(libcuda: Option<&Path>, gpu: GpuUuid) -> Result<Self, DeviceError> {
        let (library, _) = open_library(libcuda)?;
        let init: Init = call(&library, "cuInit")?;
        // SAFETY: `CUresult cuInit(unsigned int)`.
        check("cuInit", unsafe { init(0) })?;
        let device = device(&library, gpu)?;
        let retain: Retain = call(&library, "cuDevicePrimaryCtxRetain")?;
        let set_current: SetCurrent = call(&library, "cuCtxSetCurrent")?;
        let allocate: Allocate = call(&library, "cuMemAlloc_v2")?;
        let (mut context, mut address) = (ptr::null_mut(), 0);
        // SAFETY: the call writes one CUcontext, a pointer, through a valid pointer.
        check("cuDevicePrimaryCtxRetain", unsafe {
            retain(&raw mut context, device)
        })?;
        // SAFETY: a context that was just made, and is never released.
        check("cuCtxSetCurrent", unsafe { set_current(context) })?;
        // SAFETY: the call writes one CUdeviceptr, 64 bits, through a valid pointer.
        check("cuMemAlloc", unsafe { allocate(&raw mut address, size()) })?;
        Ok(Self { address, library })
    }

    /// Fills the memory with the pattern.
    pub(super) fn fill(&self) -> Result<(), DeviceError> {
        let to_device: ToDevice = call(&self.library, "cuMemcpyHtoD_v2")?;
        let pattern: Vec<u64> = words(self.address).collect();
        assert_eq!(size_of_val(pattern.as_slice()), size());
        // SAFETY: the call reads as many bytes as the vector has, and the allocation is as large;
        // pageable memory has been read when it returns (CUDA driver API, "API synchronization
        // behavior").
        check("cuMemcpyHtoD", unsafe {
            to_device(self.address, pattern.as_ptr().cast(), size())
        })
    }

    /// Returns how many words differ from the pattern.
    pub(super) fn wrong_words(&self) -> Result<u64, DeviceError> {
        let to_host: ToHost = call(&self.library, "cuMemcpyDtoH_v2")?;
        let mut found: Vec<u64> = words(0).collect();
        assert_eq!(size_of_val(found.as_slice()), size());
        // SAFETY: the call writes as many bytes as the vector has, and the allocation is as large;
        // the copy is over when it returns.
        check("cuMemcpyDtoH", unsafe {
            to_host(found.as_mut_ptr().cast(), self.address, size())
        })?;
        let both = found.iter().zip(words(self.address));
        Ok(both.filter(|(found, expected)| *found != expected).count() as u64)
    }
}

const fn size() -> usize {
    assert!(BYTES == WORDS * 8 && BYTES <= usize::MAX as u64);
    #[allow(clippy::cast_possible_truncation)] // checked above
    {
        BYTES as usize
    }
}

/// Returns CUDA's device number of the GPU with this UUID.
fn device(library: &Library, gpu: GpuUuid) -> Result<c_int, DeviceError> {
    let get_count: GetNumber = call(library, "cuDeviceGetCount")?;
    let get_device: GetDevice = call(library, "cuDeviceGet")?;
    let get_uuid: GetUuid = call(library, "cuDeviceGetUuid_v2")?;
    let mut count = 0;
    // SAFETY: the call writes one int through a valid pointer.
    check("cuDeviceGetCount", unsafe { get_count(&raw mut count) })?;
    for ordinal in 0..count {
        let (mut device, mut uuid) = (0, [0; 16]);
        // SAFETY: the call writes one CUdevice, an int, through a valid pointer.
        check("cuDeviceGet", unsafe {
            get_device(&raw mut device, ordinal)
        })?;
        // SAFETY: the call writes one CUuuid, 16 bytes, through a valid pointer.
        check("cuDeviceGetUuid", unsafe {
            get_uuid(&raw mut uuid, device)
        })?;
        if GpuUuid::from_bytes(uuid) == gpu {
            return Ok(device);
        }
    }
    Err(DeviceError::NoGpu(gpu))
}

/// Looks up a call. Callers ask for the type that cuda.h declares.
fn call<T: Copy>(library: &Library, name: &'static str) -> Result<T, DeviceError> {
    // SAFETY: `T` is one of the function types above, each named with its call after the
    // declarations of cuda.h 12.8 to 13.5; the library is never closed before the call's last use.
    let found = unsafe { library.get::<T>(name) };
    found
        .map(|found| *found)
        .map_err(|_| DeviceError::NoCall(name))
}

fn check(name: &'static str, result: c_int) -> Result<(), DeviceError> {
    match result {
        0 => Ok(()),
        code => Err(DeviceError::Cuda(name, CudaError::from_code(code))),
    }
}
