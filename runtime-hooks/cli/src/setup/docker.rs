//! Docker: `runtimes` in `daemon.json`, and `experimental`, without which it has no checkpoints.

use std::path::Path;

use serde_json::value::{RawValue, to_raw_value};

use super::change::{self, Change};
use super::json::Object;
use super::{SetupError, Way};

const SETTINGS: &str = "/etc/docker/daemon.json";
const RUNTIMES: &str = "runtimes";
const NAME: &str = "stasis";

pub(super) fn change(runtime: &str, way: Way) -> Result<Change, SetupError> {
    let path = Path::new(SETTINGS);
    let before = change::read(path)?;
    let after = changed(before.as_deref(), runtime, way);
    let after = after.map_err(|error| SetupError::Content {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    Ok(Change::of(path, before, after))
}

fn changed(
    before: Option<&str>,
    runtime: &str,
    way: Way,
) -> Result<Option<String>, serde_json::Error> {
    // Docker takes an empty file as no settings.
    let text = before.map(str::trim).filter(|text| !text.is_empty());
    let mut settings: Object = text.map_or(Ok(Object::default()), serde_json::from_str)?;
    let mut runtimes: Object = match settings.get(RUNTIMES) {
        Some(runtimes) => serde_json::from_str(runtimes.get())?,
        None => Object::default(),
    };
    let is_set =
        is(runtimes.get(NAME), &path_of(runtime)) && is(settings.get("experimental"), &true.into());
    match way {
        Way::Set if is_set => return Ok(before.map(str::to_owned)),
        Way::Undo if runtimes.get(NAME).is_none() => return Ok(before.map(str::to_owned)),
        Way::Set => {
            runtimes.set(NAME, to_raw_value(&path_of(runtime))?);
            settings.set("experimental", to_raw_value(&true)?);
        }
        // Whether `experimental` was on before is not recorded: it stays.
        Way::Undo => runtimes.remove(NAME),
    }
    if runtimes.is_empty() {
        settings.remove(RUNTIMES);
    } else {
        settings.set(RUNTIMES, RawValue::from_string(runtimes.to_text(1)?)?);
    }
    Ok(Some(settings.to_text(0)? + "\n"))
}

fn path_of(runtime: &str) -> serde_json::Value {
    serde_json::json!({ "path": runtime })
}

fn is(found: Option<&RawValue>, wanted: &serde_json::Value) -> bool {
    let found = found.and_then(|found| serde_json::from_str::<serde_json::Value>(found.get()).ok());
    found.as_ref() == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/usr/bin/stasis-runtime";

    fn set(before: Option<&str>, way: Way) -> String {
        changed(before, OURS, way).unwrap().unwrap_or_default()
    }

    #[test]
    fn what_is_not_known_stays_as_it_is_written() {
        let before = "{\n    \"zeta\": [1,   2],\n    \"runtimes\": {\n        \"nvidia\": {\"path\": \
                      \"x\",  \"args\": []}\n    },\n    \"alpha\": {\"b\": 1, \"a\": 2}\n}\n";
        let after = set(Some(before), Way::Set);
        for part in [
            "\"zeta\": [1,   2],\n",
            "        \"nvidia\": {\"path\": \"x\",  \"args\": []},\n",
            "        \"stasis\": {\"path\":\"/usr/bin/stasis-runtime\"}\n    },\n",
            "\"alpha\": {\"b\": 1, \"a\": 2},\n    \"experimental\": true\n}\n",
        ] {
            assert!(after.contains(part), "{part}: {after}");
        }
        assert_eq!(set(Some(&after), Way::Set), after);
        let undone = set(Some(&after), Way::Undo);
        assert_eq!(undone.replace(",\n    \"experimental\": true", ""), before);
        assert_eq!(set(Some(before), Way::Undo), before);
    }

    #[test]
    fn files_that_are_not_there_or_cannot_be_read() {
        let made = set(None, Way::Set);
        assert_eq!(
            set(Some(&made), Way::Undo),
            "{\n    \"experimental\": true\n}\n"
        );
        assert_eq!(set(Some(" \n"), Way::Set), made);
        assert_eq!(changed(None, OURS, Way::Undo).unwrap(), None);
        for wrong in ["{", "[]", "{\"runtimes\": 3}", "{} {}"] {
            assert!(changed(Some(wrong), OURS, Way::Set).is_err(), "{wrong}");
        }
    }
}
