//! The low-level runtime that a container's engine would call: the one named to its shim, or
//! conmon, when the container was made. No daemon is asked.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::container::Container;
use stasis_linux::procfs::{arguments, is_of_go, program};
use stasis_linux::{ProcessRef, file};
use toml_edit::Value;

use crate::setup::tables::Toml;

/// containerd's own shim writes the name of the runtime into the bundle.
const RECORD: &str = "runtime";
const MOST_BYTES: u64 = 1 << 20;
/// NVIDIA's program in front of a low-level runtime, and its settings.
pub(crate) const NVIDIA: &str = "nvidia-container-runtime";
pub(crate) const NVIDIA_SETTINGS: &str = "/etc/nvidia-container-runtime/config.toml";
/// The runtimes that it tries without settings.
const NVIDIA_TAKES: [&str; 2] = ["runc", "crun"];

/// The low-level runtime that a process calls for a container.
#[derive(Debug)]
pub(super) struct Calls {
    /// A shim of containerd's, or conmon.
    pub(super) by: ProcessRef,
    /// The runtime, by its name or its path.
    pub(super) program: PathBuf,
}

/// Returns the runtime if it is neither stasis nor calls it: any program but runc, crun, and
/// NVIDIA's program in front of these, may be a script that calls stasis.
pub(super) fn of_others(container: &Container) -> Option<Calls> {
    let by = container.init().parent().ok()??;
    let keeper = program(by.pid()).ok()??;
    let name = keeper.file_name()?.to_string_lossy().into_owned();
    let program = match name.as_str() {
        "conmon" => told_to_conmon(&arguments(by.pid()).ok()??)?,
        // Our shim, which may have been copied to that name, is no Go program.
        name if name.starts_with("containerd-shim-runc-") && is_of_go(by.pid()).ok()?? => {
            recorded_in(container.bundle()?)?
        }
        _ => return None,
    };
    let is_other = is_other(&program, || Toml::read(Path::new(NVIDIA_SETTINGS)).ok());
    is_other.then_some(Calls { by, program })
}

/// Finds the runtime that podman or CRI-O calls, and has named to conmon.
fn told_to_conmon(arguments: &[OsString]) -> Option<PathBuf> {
    let is_option = |word: &OsString| word == "-r" || word == "--runtime";
    let at = arguments.iter().position(is_option)?;
    arguments.get(at + 1).map(PathBuf::from)
}

/// Reads the runtime that the shim recorded: runc if it was given none.
fn recorded_in(bundle: &Path) -> Option<PathBuf> {
    let named = file::read(&bundle.join(RECORD), MOST_BYTES).ok()??;
    Some(match named.is_empty() {
        true => PathBuf::from("runc"),
        false => OsString::from_vec(named).into(),
    })
}

/// Returns whether a program is runc or crun; `nvidia` has the settings of NVIDIA's program.
fn is_other(program: &Path, nvidia: impl FnOnce() -> Option<Toml>) -> bool {
    let called = name_of(program);
    if called.starts_with(NVIDIA) {
        let behind = behind_nvidia(nvidia().as_ref());
        return behind.is_some_and(|behind| is_low_level(&name_of(&behind)));
    }
    is_low_level(&called)
}

fn is_low_level(name: &str) -> bool {
    name == "runc" || name == "crun"
}

/// Returns the name of the program that is called, behind links.
fn name_of(program: &Path) -> String {
    let found = found(program).unwrap_or_else(|| program.to_owned());
    let file = found.canonicalize().unwrap_or(found);
    let name = file.file_name().unwrap_or(OsStr::new(""));
    name.to_string_lossy().into_owned()
}

fn found(program: &Path) -> Option<PathBuf> {
    let resolved = Settings::default().runtime.resolve_instead(program);
    resolved.ok().map(|low_level| low_level.path)
}

/// Returns the first program of its list that exists.
fn behind_nvidia(settings: Option<&Toml>) -> Option<PathBuf> {
    let listed = settings.and_then(|settings| settings.find(&[NVIDIA, "runtimes"])?.as_array());
    let found = |name: &str| found(Path::new(name));
    match listed {
        Some(list) => list.iter().filter_map(Value::as_str).find_map(found),
        None => NVIDIA_TAKES.into_iter().find_map(found),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn conmon_and_the_shim_were_told_which() {
        let told = |line| told_to_conmon(&words(line));
        let podman = "/usr/bin/conmon --api-version 1 -c 1a -u 1a -r /usr/bin/crun -b /run/1a";
        assert_eq!(told(podman), Some("/usr/bin/crun".into()));
        assert_eq!(told("conmon -b /run/1a -r"), None);
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(recorded_in(bundle.path()), None);
        for (text, program) in [("", "runc"), ("/opt/crun", "/opt/crun")] {
            fs::write(bundle.path().join(RECORD), text).unwrap();
            assert_eq!(recorded_in(bundle.path()), Some(program.into()));
        }
    }

    #[test]
    fn only_what_is_known_to_be_no_stasis_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let program = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            path
        };
        let (runc, ours) = (program("runc"), program("stasis-runtime"));
        let (script, nvidia) = (program("wrapped"), program("nvidia-container-runtime"));
        let link = directory.path().join("crun");
        symlink(&ours, &link).unwrap();
        for (path, other) in [
            (&runc, true),
            (&ours, false),
            (&script, false),
            (&link, false),
        ] {
            assert_eq!(is_other(path, || None), other, "{}", path.display());
        }
        assert!(is_other(Path::new("/nowhere/crun"), || None));
        let lists = |list: &[&Path]| {
            let list = list.iter().map(|path| format!("{path:?}"));
            let list = list.collect::<Vec<_>>().join(", ");
            let text = format!("[nvidia-container-runtime]\nruntimes = [{list}]\n");
            is_other(&nvidia, || Toml::parse(Path::new("x"), Some(&text)).ok())
        };
        assert!(lists(&[Path::new("/nowhere/stasis-runtime"), &runc]));
        assert!(!lists(&[&ours, &runc]) && !lists(&[&script]) && !lists(&[]));
    }
}
