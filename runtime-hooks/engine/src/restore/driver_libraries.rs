//! Replaces bind mounts of driver libraries that this machine has in another version.
//!
//! A container with CDI has the driver's files as bind mounts from the host, and their names
//! contain the driver's version: `libcuda.so.580.95.05`. A caller that keeps a container's
//! specification still has the names from the machine and time of the container's creation. The
//! low-level runtime reads the sources of a restore's mounts from `config.json`, so they are
//! replaced there. The *destinations* stay, since CRIU's image identifies the mounts by them.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};
use stasis_gpu::cuda::driver_version::DriverVersion;
use stasis_linux::procfs::for_each_mapping;

use crate::container::spec::{Spec, bind};

/// The directories of the driver's libraries on distributions and container hosts.
const USUAL: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
];

/// The files of this machine's driver.
#[derive(Debug)]
pub struct DriverFiles {
    /// The version in the files' names.
    version: String,
    directories: Vec<PathBuf>,
}

impl DriverFiles {
    /// The files of a driver with this version: beside the libcuda that this process has loaded, or
    /// in the usual directories.
    pub fn of(version: &str) -> Self {
        let usual = USUAL.iter().map(PathBuf::from);
        Self {
            version: version.to_owned(),
            directories: directory_of_libcuda().into_iter().chain(usual).collect(),
        }
    }

    /// Replaces missing sources of bind mounts by the same files of this driver, and returns a note
    /// for each. The low-level runtime reports the sources without a replacement.
    pub fn replace_missing(&self, spec: &mut Spec) -> Vec<String> {
        let mut notes = Vec::new();
        let mounts = spec.tree_mut().get_mut("mounts");
        for mount in mounts.and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(source) = bind(mount).map(|bind| bind.source.to_owned()) else {
                continue;
            };
            if !is_missing(Path::new(&source)) {
                continue;
            }
            if let Some(found) = self.counterpart(Path::new(&source)) {
                notes.push(format!("{source} is {} here", found.display()));
                mount["source"] = json!(found);
            }
        }
        notes
    }

    fn counterpart(&self, source: &Path) -> Option<PathBuf> {
        self.library(source).or_else(|| self.firmware(source))
    }

    /// The library of the same name with this driver's version: beside the missing one, or in one
    /// of this driver's directories.
    fn library(&self, source: &Path) -> Option<PathBuf> {
        let (stem, version) = source.file_name()?.to_str()?.split_once(".so.")?;
        self.may_replace(version)?;
        let name = format!("{stem}.so.{}", self.version);
        let beside = source.parent()?;
        let directories = self.directories.iter().map(PathBuf::as_path);
        std::iter::once(beside)
            .chain(directories)
            .map(|directory| directory.join(&name))
            .find(|path| path.is_file())
    }

    /// Firmware is in a directory with the version's name:
    /// `firmware/nvidia/580.95.05/gsp_ga10x.bin`.
    fn firmware(&self, source: &Path) -> Option<PathBuf> {
        let parts: Vec<Component<'_>> = source.components().collect();
        let above = [
            Component::Normal("firmware".as_ref()),
            Component::Normal("nvidia".as_ref()),
        ];
        let place = parts.windows(2).position(|pair| pair == above)? + 2;
        self.may_replace(parts.get(place)?.as_os_str().to_str()?)?;
        let version = Component::Normal(self.version.as_ref());
        let path: PathBuf = [&parts[..place], &[version], &parts[place + 1..]]
            .concat()
            .iter()
            .collect();
        path.exists().then_some(path)
    }

    /// Whether this is another version of the driver (other libraries, like
    /// `libnvidia-egl-gbm.so.1.1.2`, have versions of their own) and of no newer branch.
    fn may_replace(&self, version: &str) -> Option<()> {
        let numbers: Vec<&str> = version.split('.').collect();
        let digits =
            |number: &&str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_driver = matches!(numbers.len(), 2 | 3)
            && numbers.iter().all(digits)
            && numbers.first().is_some_and(|branch| branch.len() == 3);
        let theirs = DriverVersion::parse(version)?;
        let ours = DriverVersion::parse(&self.version)?;
        (is_driver && theirs.branch() <= ours.branch()).then_some(())
    }
}

/// Whether a path is missing; a path that cannot be read is not missing.
fn is_missing(path: &Path) -> bool {
    path.is_absolute() && matches!(path.try_exists(), Ok(false))
}

/// The directory of the libcuda that the dynamic linker has loaded.
fn directory_of_libcuda() -> Option<PathBuf> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let found = for_each_mapping(own, |mapping| {
        let path = Path::new(OsStr::from_bytes(mapping.path));
        let name = path.file_name().unwrap_or_default().as_bytes();
        if name.starts_with(b"libcuda.so") {
            return ControlFlow::Break(path.parent().map(Path::to_owned));
        }
        ControlFlow::Continue(())
    });
    found.ok().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::container::spec::tests::spec;

    struct Machine {
        root: tempfile::TempDir,
    }

    impl Machine {
        fn with(files: &[&str]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for file in files {
                let path = root.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            Self { root }
        }

        fn path(&self, name: &str) -> String {
            self.root.path().join(name).to_str().unwrap().to_owned()
        }

        /// The replacement of this mount source.
        fn replaced(&self, source: &str) -> Option<String> {
            let files = DriverFiles {
                version: "580.105.08".to_owned(),
                directories: vec![self.root.path().join("driver")],
            };
            let mount = json!({"source": self.path(source), "destination": "/d", "options": ["ro", "bind"]});
            let mut spec = spec(json!({"mounts": [mount]}));
            let notes = files.replace_missing(&mut spec);
            let now = spec.binds().next().unwrap();
            assert_eq!(now.destination, "/d");
            let changed = now.source != self.path(source);
            assert_eq!(notes.len(), usize::from(changed));
            let root = format!("{}/", self.root.path().display());
            changed.then(|| now.source.strip_prefix(&root).unwrap().to_owned())
        }
    }

    #[test]
    fn a_missing_library_is_that_of_this_driver() {
        let machine = Machine::with(&[
            "lib/libcuda.so.580.105.08",
            "driver/libcuda.so.580.105.08",
            "driver/libnvidia-ml.so.580.105.08",
        ]);
        let replaced = |source| machine.replaced(source);
        let beside = Some("lib/libcuda.so.580.105.08".to_owned());
        assert_eq!(replaced("lib/libcuda.so.580.95.05"), beside);
        assert_eq!(replaced("lib/libcuda.so.570.86"), beside);
        let elsewhere = Some("driver/libnvidia-ml.so.580.105.08".to_owned());
        assert_eq!(replaced("lib/libnvidia-ml.so.580.95.05"), elsewhere);
    }

    #[test]
    fn only_missing_driver_files_of_no_newer_branch_are_replaced() {
        let machine = Machine::with(&[
            "lib/libcuda.so.580.105.08",
            "lib/libcuda.so.580.95.05",
            "lib/libgbm.so.580.105.08",
        ]);
        for source in [
            "lib/libcuda.so.580.95.05",
            "lib/libcuda.so.590.44.01",
            "lib/libgbm.so.1.1.2",
            "lib/libgbm.so.1",
            "lib/libother.so.580.95.05",
            "bin/nvidia-smi",
        ] {
            assert_eq!(machine.replaced(source), None, "{source}");
        }
    }

    #[test]
    fn firmware_is_in_a_directory_of_its_version() {
        let machine = Machine::with(&["lib/firmware/nvidia/580.105.08/gsp_ga10x.bin"]);
        assert_eq!(
            machine.replaced("lib/firmware/nvidia/580.95.05/gsp_ga10x.bin"),
            Some("lib/firmware/nvidia/580.105.08/gsp_ga10x.bin".to_owned())
        );
        assert_eq!(
            machine.replaced("lib/firmware/nvidia/580.95.05/gsp_tu10x.bin"),
            None
        );
        assert_eq!(
            machine.replaced("lib/firmware/nvidia/ad102/gsp_ga10x.bin"),
            None
        );
    }

    #[test]
    fn other_mounts_are_left_alone() {
        let tree = json!({"mounts": [
            {"source": "/nonexistent/libcuda.so.580.95.05", "destination": "/d", "type": "tmpfs"},
            {"source": "libcuda.so.580.95.05", "destination": "/d", "options": ["bind"]},
        ]});
        let mut spec = spec(tree.clone());
        assert!(
            DriverFiles::of("580.105.08")
                .replace_missing(&mut spec)
                .is_empty()
        );
        assert_eq!(*spec.tree_mut(), tree);
    }
}
