//! libcuda, opened at run time, and its checkpoint calls.
#![allow(unsafe_code)]

use std::ffi::{OsStr, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use libloading::Library;
use stasis_linux::ProcessRef;

use super::{CudaError, CudaState, Driver, GpuMap};

/// Where drivers put libcuda when the dynamic linker does not know it: container hosts whose
/// driver comes as an image or a read-only mount.
const SEARCH: [&str; 5] = [
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1",
];

type Versioned = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetNumber = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
type WithArguments = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

/// The argument block of every checkpoint call: 64 bytes in cuda.h 12.8 to 13.5, unused bytes
/// zero.
#[repr(C, align(8))]
struct Arguments([u8; 64]);

impl Arguments {
    fn zeroed() -> Self {
        Self([0; 64])
    }

    /// `CUcheckpointLockArgs`: u32 timeout in milliseconds at 0; 0 would wait for ever.
    fn lock(timeout: Duration) -> Self {
        let millis = u32::try_from(timeout.as_millis())
            .unwrap_or(u32::MAX)
            .max(1);
        let mut arguments = Self::zeroed();
        arguments.0[..4].copy_from_slice(&millis.to_ne_bytes());
        arguments
    }

    /// `CUcheckpointRestoreArgs` from CUDA 13.0 on: pointer to pairs at 0, u32 count at 8. Older
    /// drivers want these bytes zero, which the identity map gives.
    fn restore(pairs: &[GpuPair]) -> Self {
        let mut arguments = Self::zeroed();
        if !pairs.is_empty() {
            let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
            arguments.0[..8].copy_from_slice(&(pairs.as_ptr() as usize).to_ne_bytes());
            arguments.0[8..12].copy_from_slice(&count.to_ne_bytes());
        }
        arguments
    }

    fn as_mut_ptr(&mut self) -> *mut c_void {
        ptr::from_mut(self).cast()
    }
}

/// `CUcheckpointGpuPair`.
#[repr(C)]
struct GpuPair {
    old: [u8; 16],
    new: [u8; 16],
}

/// The checkpoint calls of libcuda.
#[derive(Debug)]
pub struct CudaDriver {
    restore_thread: GetNumber,
    state: GetNumber,
    lock: WithArguments,
    checkpoint: WithArguments,
    restore: WithArguments,
    unlock: WithArguments,
    /// The functions above live as long as the library is loaded.
    _library: Library,
}

/// An error of opening libcuda.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    #[error(
        "no CUDA driver found: libcuda.so.1 is not where the dynamic linker or usual \
             installations have it; name it in the settings (driver.libcuda)"
    )]
    NotFound,
    #[error("cannot load the CUDA driver library {path}")]
    Load {
        path: PathBuf,
        source: libloading::Error,
    },
    #[error(
        "the CUDA driver library {path} has no {symbol} (it supports CUDA {version}); \
             checkpoints need driver 570 (CUDA 12.8) or newer"
    )]
    TooOld {
        path: PathBuf,
        symbol: &'static str,
        version: String,
    },
}

impl CudaDriver {
    /// Opens libcuda: the given file, or the first one of `SEARCH` that exists.
    ///
    /// # Errors
    /// [`OpenError`]; a machine without a driver is [`OpenError::NotFound`].
    pub fn open(path: Option<&Path>) -> Result<Self, OpenError> {
        let (library, path) = open_library(path)?;
        Self::bind(library, &path)
    }

    fn bind(library: Library, path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            restore_thread: symbol(&library, path, "cuCheckpointProcessGetRestoreThreadId")?,
            state: symbol(&library, path, "cuCheckpointProcessGetState")?,
            lock: symbol(&library, path, "cuCheckpointProcessLock")?,
            checkpoint: symbol(&library, path, "cuCheckpointProcessCheckpoint")?,
            restore: symbol(&library, path, "cuCheckpointProcessRestore")?,
            unlock: symbol(&library, path, "cuCheckpointProcessUnlock")?,
            _library: library,
        })
    }
}

/// Opens libcuda, and returns its path: the given file, or the first one of `SEARCH` that exists.
pub(crate) fn open_library(path: Option<&Path>) -> Result<(Library, PathBuf), OpenError> {
    let broken = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Load { path, source }
    };
    if let Some(path) = path {
        let library = load(path.as_os_str()).map_err(broken(path))?;
        return Ok((library, path.to_owned()));
    }
    for candidate in SEARCH {
        let path = Path::new(candidate);
        match load(OsStr::new(candidate)) {
            Ok(library) => return Ok((library, path.to_owned())),
            // A broken library is reported, not skipped.
            Err(source) if path.exists() => return Err(broken(path)(source)),
            Err(_) => {}
        }
    }
    Err(OpenError::NotFound)
}

fn load(path: &OsStr) -> Result<Library, libloading::Error> {
    // SAFETY: libcuda's constructors are those that every CUDA program runs; the file comes from
    // the dynamic linker's own configuration, a fixed system path or the root-owned settings.
    unsafe { Library::new(path) }
}

/// Looks up a function of the library. Callers pass as `T` the type that cuda.h declares.
fn symbol<T: Copy>(library: &Library, path: &Path, name: &'static str) -> Result<T, OpenError> {
    // SAFETY: `T` is one of the function types above, each matched to its symbol in `bind` and
    // `version_of` after the declarations of cuda.h 12.8 to 13.5. The library outlives the copy.
    let found = unsafe { library.get::<T>(name) }.map(|found| *found);
    found.map_err(|_| OpenError::TooOld {
        path: path.to_owned(),
        symbol: name,
        version: version_of(library),
    })
}

fn version_of(library: &Library) -> String {
    let mut version = 0;
    // SAFETY: `int cuDriverGetVersion(int *)` since CUDA 2; needs no initialisation.
    let result = unsafe {
        library
            .get::<Versioned>("cuDriverGetVersion")
            .map(|get_version| get_version(&raw mut version))
    };
    match result {
        Ok(0) => format!("{}.{}", version / 1000, version % 1000 / 10),
        _ => "of an unknown version".to_owned(),
    }
}

/// Ends this process at once, without running the destructors of its libraries.
pub(crate) fn end_process(code: u8) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { nix::libc::_exit(code.into()) }
}

fn check(result: c_int) -> Result<(), CudaError> {
    match result {
        0 => Ok(()),
        code => Err(CudaError::from_code(code)),
    }
}

impl Driver for CudaDriver {
    fn state(&self, process: &ProcessRef) -> Result<CudaState, CudaError> {
        let pid = pid_of(process)?;
        let mut state: c_int = 0;
        // SAFETY: the call writes one CUprocessState (an int) through a valid pointer.
        check(unsafe { (self.state)(pid, &raw mut state) })?;
        Ok(CudaState::from(state))
    }

    fn restore_thread(&self, process: &ProcessRef) -> Result<i32, CudaError> {
        let pid = pid_of(process)?;
        let mut thread: c_int = 0;
        // SAFETY: the call writes one int through a valid pointer.
        check(unsafe { (self.restore_thread)(pid, &raw mut thread) })?;
        Ok(thread)
    }

    fn lock(&self, process: &ProcessRef, timeout: Duration) -> Result<(), CudaError> {
        let pid = pid_of(process)?;
        let mut arguments = Arguments::lock(timeout);
        // SAFETY: the 64-byte argument block outlives the call.
        check(unsafe { (self.lock)(pid, arguments.as_mut_ptr()) })
    }

    fn checkpoint(&self, process: &ProcessRef) -> Result<(), CudaError> {
        let pid = pid_of(process)?;
        let mut arguments = Arguments::zeroed();
        // SAFETY: the 64-byte argument block outlives the call.
        check(unsafe { (self.checkpoint)(pid, arguments.as_mut_ptr()) })
    }

    fn restore(&self, process: &ProcessRef, map: &GpuMap) -> Result<(), CudaError> {
        match (self.restore_with(process, map), map.widened()) {
            (Err(CudaError::InvalidValue), Some(wider)) => self.restore_with(process, &wider),
            (result, _) => result,
        }
    }

    fn unlock(&self, process: &ProcessRef) -> Result<(), CudaError> {
        let pid = pid_of(process)?;
        let mut arguments = Arguments::zeroed();
        // SAFETY: the 64-byte argument block outlives the call.
        check(unsafe { (self.unlock)(pid, arguments.as_mut_ptr()) })
    }
}

impl CudaDriver {
    fn restore_with(&self, process: &ProcessRef, map: &GpuMap) -> Result<(), CudaError> {
        let pairs: Vec<GpuPair> = map
            .pairs()
            .iter()
            .map(|(old, new)| GpuPair {
                old: *old.as_bytes(),
                new: *new.as_bytes(),
            })
            .collect();
        let pid = pid_of(process)?;
        let mut arguments = Arguments::restore(&pairs);
        // SAFETY: the argument block and the pairs that it points to outlive the call.
        check(unsafe { (self.restore)(pid, arguments.as_mut_ptr()) })
    }
}

/// The pid, while the process has not ended: until then the kernel gives it to no other.
fn pid_of(process: &ProcessRef) -> Result<i32, CudaError> {
    if process.is_gone() {
        return Err(CudaError::Ended);
    }
    Ok(process.pid())
}

// The driver's calls take only a pid and may come from any thread at the same time: the loaded
// library and plain function pointers are `Send + Sync` by themselves.
const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<CudaDriver>();
    assert!(size_of::<c_uint>() == 4 && size_of::<Arguments>() == 64);
};

#[cfg(test)]
mod tests;
