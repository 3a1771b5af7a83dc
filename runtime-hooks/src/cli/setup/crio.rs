//! CRI-O: a runtime handler for the RuntimeClass `stasis`, in a file of its own in `crio.conf.d`
//! (crio.conf(5), "CRIO.RUNTIME.RUNTIMES TABLE").

use std::path::Path;

use super::change::{self, Change};
use super::programs::Programs;
use super::{SetupError, Way, tables};
use crate::cli::locate::Located;
use crate::cli::locate::roots::{CRI_O, Place, places};

const SETTINGS: &str = "/etc/crio/crio.conf.d/stasis.conf";
const NAME: &str = "stasis";
const HANDLER: [&str; 4] = ["crio", "runtime", "runtimes", NAME];

pub(super) fn changes(programs: &Programs, way: Way) -> Result<Vec<Change>, SetupError> {
    if way == Way::Undo {
        nobody_needs_it()?;
    }
    let path = Path::new(SETTINGS);
    let before = change::read(path)?;
    let after = changed(path, before.as_deref(), &programs.runtime, way)?;
    Ok(vec![Change::of(path, before, after)])
}

/// CRI-O has the handler stop and remove its containers, those that have ended, too. Nothing else
/// says whose a container is: only its sandbox is annotated with its handler. So the handler has a
/// root of its own.
fn nobody_needs_it() -> Result<(), SetupError> {
    let found: Vec<String> = places(&[CRI_O.into()]).into_iter().map(name).collect();
    if found.is_empty() {
        Ok(())
    } else {
        Err(SetupError::InUse(found))
    }
}

/// As people know it; its id where that cannot be told.
fn name(place: Place) -> String {
    let located = Located::load(&place);
    let name = located.ok().and_then(|located| located.known().name);
    name.unwrap_or(place.id)
}

fn changed(
    path: &Path,
    before: Option<&str>,
    runtime: &str,
    way: Way,
) -> Result<Option<String>, SetupError> {
    let mut document = tables::parse(path, before)?;
    match way {
        Way::Set => {
            for (key, value) in [
                ("runtime_path", runtime),
                ("runtime_type", "oci"),
                ("runtime_root", CRI_O),
            ] {
                tables::put(path, &mut document, &HANDLER, key, value)?;
            }
        }
        Way::Undo => tables::remove(document.as_table_mut(), &HANDLER),
    }
    let after = document.to_string();
    Ok((!after.trim().is_empty()).then_some(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/usr/bin/stasis-runtime";

    fn set(before: Option<&str>, way: Way) -> Result<Option<String>, SetupError> {
        changed(Path::new(SETTINGS), before, OURS, way)
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
