//! CRI-O: a runtime handler for the RuntimeClass `stasis`, in a file of its own in `crio.conf.d`
//! (crio.conf(5), "CRIO.RUNTIME.RUNTIMES TABLE").

use stasis_locate::Located;
use stasis_locate::roots::{CRI_O, ContainerLocation, places};

use super::tables::Toml;
use super::{SetupError, Way};

pub(super) const SETTINGS: &str = "/etc/crio/crio.conf.d/stasis.conf";
const NAME: &str = "stasis";
const HANDLER: [&str; 4] = ["crio", "runtime", "runtimes", NAME];

pub(super) fn edit(toml: &mut Toml, runtime: &str, way: Way) -> Result<(), SetupError> {
    match way {
        Way::Set => {
            toml.put(&HANDLER, "runtime_path", runtime)?;
            toml.put(&HANDLER, "runtime_type", "oci")?;
            toml.put(&HANDLER, "runtime_root", CRI_O)?;
        }
        Way::Undo => toml.remove(&HANDLER),
    }
    Ok(())
}

/// Refuses while CRI-O has containers of the handler, by which it stops and removes them, also
/// ended ones. Only a container's sandbox is annotated with its handler, so the handler has a root
/// of its own, which shows its containers.
pub(super) fn nobody_needs_it() -> Result<(), SetupError> {
    SetupError::refuse(places(&[CRI_O.into()]).into_iter().map(name).collect())
}

/// Returns the engine's name for the container, or its id if that is unknown.
fn name(place: ContainerLocation) -> String {
    let located = Located::load(&place);
    let name = located.ok().and_then(|located| located.known().name);
    name.unwrap_or(place.id)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const OURS: &str = "/usr/bin/stasis-runtime";

    fn set(before: Option<&str>, way: Way) -> Result<Option<String>, SetupError> {
        let mut toml = Toml::parse(Path::new(SETTINGS), before)?;
        edit(&mut toml, OURS, way)?;
        Ok(toml.text())
    }

    #[test]
    fn a_file_of_its_own_comes_and_goes() {
        let made = set(None, Way::Set).unwrap().unwrap();
        assert_eq!(
            made,
            "[crio.runtime.runtimes.stasis]\nruntime_path = \"/usr/bin/stasis-runtime\"\n\
             runtime_type = \"oci\"\nruntime_root = \"/run/stasis-crio\"\n"
        );
        assert_eq!(set(Some(&made), Way::Set).unwrap(), Some(made.clone()));
        assert_eq!(set(Some(&made), Way::Undo).unwrap(), None);
        assert_eq!(set(None, Way::Undo).unwrap(), None);
    }

    #[test]
    fn what_somebody_has_added_stays() {
        let theirs = "# mine\n[crio.runtime]\nlog_level = \"debug\" # why\n";
        let after = set(Some(theirs), Way::Set).unwrap().unwrap();
        assert!(after.starts_with(theirs), "{after}");
        assert_eq!(set(Some(&after), Way::Undo).unwrap().unwrap(), theirs);
        let of_ours = format!("{after}monitor_path = \"/usr/bin/conmon\" # theirs\n");
        let again = set(Some(&of_ours), Way::Set).unwrap();
        assert_eq!(again, Some(of_ours));
        for wrong in ["[crio", "crio = 1"] {
            let error = set(Some(wrong), Way::Set).unwrap_err();
            assert!(error.to_string().starts_with(SETTINGS), "{error}");
        }
    }
}
