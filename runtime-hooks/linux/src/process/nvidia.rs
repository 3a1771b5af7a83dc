//! Finds the processes that can have GPU state, without asking the driver.

use std::io;
use std::ops::ControlFlow;

use super::ProcessRef;
use crate::procfs::{Mapping, any_mapping, descriptors, for_each_mapping};

const DEVICE: &[u8] = b"/dev/nvidia";
const LIBCUDA: &[u8] = b"libcuda.so";
/// The suffix that the kernel adds to the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

impl ProcessRef {
    /// Whether the process can have GPU state: it has libcuda loaded (there is no other way to
    /// use CUDA, and it stays loaded while the GPU state is in host memory), or an NVIDIA device
    /// open.
    pub fn may_use_cuda(&self) -> io::Result<bool> {
        let shows_use = |mapping: Mapping<'_>| is_libcuda(mapping.path) || is_device(mapping.path);
        Ok(any_mapping(self.pid, shows_use)? || self.has_device_open()?)
    }

    /// Whether the process has a descriptor or a mapping of an NVIDIA device.
    pub fn has_nvidia_device(&self) -> io::Result<bool> {
        let maps_one = any_mapping(self.pid, |mapping| is_device(mapping.path))?;
        Ok(maps_one || self.has_device_open()?)
    }

    /// Returns the version of the libcuda that the process has loaded, from NVIDIA's file name.
    /// `None` if it has no libcuda, or the name has no version.
    pub fn libcuda_version(&self) -> io::Result<Option<String>> {
        for_each_mapping(self.pid, |mapping| match version_of_libcuda(mapping.path) {
            Some(version) => ControlFlow::Break(version),
            None => ControlFlow::Continue(()),
        })
    }

    /// Returns the paths of the NVIDIA devices that the process has open, as the process sees them:
    /// one for each descriptor, of which it may have a million.
    pub fn open_nvidia_devices(&self) -> io::Result<impl Iterator<Item = String>> {
        Ok(descriptors(self.pid)?.filter_map(|descriptor| {
            let target = descriptor.target();
            let path = target.strip_suffix(DELETED).unwrap_or(target);
            is_device(target).then(|| String::from_utf8_lossy(path).into_owned())
        }))
    }

    fn has_device_open(&self) -> io::Result<bool> {
        Ok(descriptors(self.pid)?.any(|descriptor| is_device(descriptor.target())))
    }
}

/// `/dev/nvidia0`, `/dev/nvidiactl`, `/dev/nvidia-uvm`, `/dev/nvidia-caps/...`.
fn is_device(path: &[u8]) -> bool {
    path.starts_with(DEVICE)
}

/// `libcuda.so.1`, `libcuda.so.580.159.04`, in any directory.
fn is_libcuda(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next();
    path.starts_with(b"/") && name.is_some_and(|name| name.starts_with(LIBCUDA))
}

/// Returns the text after `libcuda.so.`, if it is more than the number of the interface.
fn version_of_libcuda(path: &[u8]) -> Option<String> {
    let name = path.strip_suffix(DELETED).unwrap_or(path);
    let name = name.rsplit(|byte| *byte == b'/').next()?;
    let version = name.strip_prefix(LIBCUDA)?.strip_prefix(b".")?;
    let version = std::str::from_utf8(version).ok()?;
    version.contains('.').then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libcuda_is_known_by_its_file_name() {
        assert!(is_libcuda(b"/usr/lib/mod\xe8le/libcuda.so.580.159.04"));
        assert!(!is_libcuda(b"/usr/lib/libcudart.so.13"));
        assert!(!is_libcuda(b"/srv/libcuda.so.1/notes"));
        assert!(!is_libcuda(b"[anon:libcuda.so]"));
    }

    #[test]
    fn the_version_of_libcuda_is_in_its_file_name() {
        let of = |path: &str| version_of_libcuda(path.as_bytes());
        let expected = Some("580.159.04".to_owned());
        assert_eq!(of("/usr/lib/libcuda.so.580.159.04"), expected);
        assert_eq!(of("/compat/libcuda.so.580.159.04 (deleted)"), expected);
        for path in [
            "/usr/lib/libcuda.so.1",
            "/usr/lib/libcuda.so",
            "/usr/lib/libc.so.6.1",
            "",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }

    #[test]
    fn this_process_uses_no_gpu() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = ProcessRef::open(own).unwrap().unwrap();
        assert!(!process.may_use_cuda().unwrap());
        assert!(!process.has_nvidia_device().unwrap());
        assert!(process.open_nvidia_devices().unwrap().next().is_none());
        assert_eq!(process.libcuda_version().unwrap(), None);
    }
}
