//! podman: a file of its own in `containers.conf.d`.

use stasis_engine::low_level::criu_program::{CriuProgram, FoundBy};
use toml_edit::{Array, InlineTable, Value};

use super::tables::Toml;
use super::{SetupError, Way};
use crate::programs::{Version, version_of};

pub(super) const SETTINGS: &str = "/etc/containers/containers.conf.d/stasis.conf";
/// The runtimes that report errors as JSON: podman requests that of no other.
const JSON: [&str; 2] = ["engine", "runtime_supports_json"];
const RUNTIMES: [&str; 2] = ["engine", "runtimes"];
const NAME: &str = "stasis";
/// The first version that can append to a list (containers/common 0.57); an earlier one takes such
/// a list for an error.
const ADDS_TO_LISTS: Version = Version::of(5, 0, 0);

pub(super) fn edit(toml: &mut Toml, runtime: &str, way: Way) -> Result<(), SetupError> {
    let podman = version_of("podman");
    let adds = podman.is_some_and(|podman| podman >= ADDS_TO_LISTS);
    let lists = if adds { Lists::Added } else { Lists::Replaced };
    edit_for(toml, runtime, way, lists)
}

/// Returns the command with which podman has a CRIU; nothing if it has one, or there is none. It
/// looks in its own `PATH` before it calls a runtime.
pub(super) fn has_criu() -> String {
    match CriuProgram::installed() {
        Some(criu) if criu.found_by == FoundBy::Stasis => {
            format!("run `ln -s {} /usr/local/sbin/criu`", criu.path.display())
        }
        _ => String::new(),
    }
}

/// The meaning of a list in a file of `containers.conf.d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lists {
    /// It can be appended to the lists of other files.
    Added,
    /// It takes their place.
    Replaced,
}

fn edit_for(toml: &mut Toml, runtime: &str, way: Way, lists: Lists) -> Result<(), SetupError> {
    if way == Way::Set && lists == Lists::Added {
        toml.put(&JSON[..1], JSON[1], json_too(runtime))?;
    } else {
        toml.remove(&JSON);
    }
    match way {
        Way::Set => toml.put(&RUNTIMES, NAME, Array::from_iter([runtime]))?,
        Way::Undo => toml.remove(&["engine", "runtimes", NAME]),
    }
    Ok(())
}

/// Lists the runtime by its name in podman, and by its program's name.
fn json_too(runtime: &str) -> Array {
    let program = runtime.rsplit('/').next().unwrap_or(runtime);
    let mut append = InlineTable::new();
    append.insert("append", Value::from(true));
    let mut list = Array::from_iter([NAME, program]);
    list.push(Value::InlineTable(append));
    list
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn set(before: Option<&str>, way: Way, lists: Lists) -> Option<String> {
        let mut toml = Toml::parse(Path::new("x"), before).unwrap();
        edit_for(&mut toml, "/usr/bin/stasis-runtime", way, lists).unwrap();
        toml.text()
    }

    #[test]
    fn a_file_of_its_own_comes_and_goes() {
        let made = set(None, Way::Set, Lists::Added).unwrap();
        assert_eq!(
            made,
            "[engine]\nruntime_supports_json = [\"stasis\", \"stasis-runtime\", { append = true \
             }]\n\n[engine.runtimes]\nstasis = [\"/usr/bin/stasis-runtime\"]\n"
        );
        assert_eq!(set(Some(&made), Way::Set, Lists::Added), Some(made.clone()));
        assert_eq!(set(Some(&made), Way::Undo, Lists::Added), None);
        assert_eq!(set(None, Way::Undo, Lists::Added), None);
        let older = set(Some(&made), Way::Set, Lists::Replaced).unwrap();
        assert_eq!(
            older,
            "[engine]\n\n[engine.runtimes]\nstasis = [\"/usr/bin/stasis-runtime\"]\n"
        );
    }

    #[test]
    fn what_somebody_has_added_stays() {
        let theirs = "# mine\n[engine]\nevents_logger = \"file\" # why\n";
        let after = set(Some(theirs), Way::Set, Lists::Added).unwrap();
        assert!(after.starts_with(theirs), "{after}");
        assert_eq!(set(Some(&after), Way::Undo, Lists::Added).unwrap(), theirs);
    }
}
