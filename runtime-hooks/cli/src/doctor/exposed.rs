//! The host's programs and libraries that root runs and users other than root could change.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_config::exposure::{Exposed, Others, exposed};
use stasis_engine::low_level::criu_program::CriuProgram;
use stasis_linux::procfs::for_each_mapping;

use super::installed::Installed;
use super::{Finding, warning};

/// NVIDIA's libraries that we load.
const LIBRARIES: [&[u8]; 2] = [b"libcuda.so", b"libnvidia-ml.so"];

/// Finds files of the low-level runtime, containerd, CRIU, its plugin and NVIDIA's libraries that
/// others than root could change. The libraries are the ones that this process has loaded.
pub(super) fn findings(settings: &Settings, programs: &[Installed]) -> Vec<Finding> {
    let mut files: BTreeSet<PathBuf> = programs.iter().map(|one| one.path.clone()).collect();
    files.extend(CriuProgram::installed().map(|criu| criu.path));
    files.insert(settings.gpu_contents.plugin.clone());
    files.extend(loaded_libraries());
    // A file that does not exist is not run.
    let exposed = |file: PathBuf| Some(finding(&file, &exposed(&file).ok()??));
    files.into_iter().filter_map(exposed).collect()
}

fn loaded_libraries() -> BTreeSet<PathBuf> {
    let mut libraries = BTreeSet::new();
    let own = std::process::id().cast_signed();
    // Without the list of mappings there are no libraries to report.
    let _ = for_each_mapping::<Infallible>(own, |mapping| {
        let file = mapping.path.rsplit(|byte| *byte == b'/').next();
        let is_named = |library: &[u8]| file.is_some_and(|file| file.starts_with(library));
        if LIBRARIES.into_iter().any(is_named) {
            libraries.insert(PathBuf::from(OsStr::from_bytes(mapping.path)));
        }
        ControlFlow::Continue(())
    });
    libraries
}

fn finding(file: &Path, exposed: &Exposed) -> Finding {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let remedy = match exposed.to {
        Others::Some => "chown it to root, and chmod g-w",
        Others::All => "chmod go-w",
    };
    let evidence = format!("root runs {}, and {exposed}", file.display());
    warning(&format!("exposed-{name}"), evidence, remedy)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_could_change_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.gpu_contents.plugin = directory.path().join("plugin.so");
        let ids = || {
            let found = findings(&settings, &[]).into_iter();
            found
                .filter(|found| found.id == "exposed-plugin.so")
                .count()
        };
        assert_eq!(ids(), 0, "it is not there");
        fs::write(&settings.gpu_contents.plugin, "").unwrap();
        assert_eq!(ids(), 0);
        let for_all = Permissions::from_mode(0o777);
        fs::set_permissions(directory.path(), for_all).unwrap();
        assert_eq!(ids(), 1);
    }
}
