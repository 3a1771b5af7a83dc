//! containerd: a runtime handler of CRI, for the RuntimeClass `stasis`, in its main file: if an
//! imported file has settings of CRI, containerd 1.x drops all of the main file's.

use toml_edit::Item;

use super::in_use;
use super::tables::Toml;
use super::{SetupError, Way};
use crate::programs::{Version, version_of};

pub(super) const SETTINGS: &str = "/etc/containerd/config.toml";
const NAME: &str = "stasis";
/// The runtime's name, under which options are passed on (docs/containerd.md).
const RUNTIME_TYPE: &str = "io.containerd.runc.v2";
/// Annotations by which pods configure stasis: containerd passes on only the listed ones.
const ANNOTATIONS: &str = "io.stasis.*";
const ANNOTATIONS_KEY: &str = "pod_annotations";
/// CRI, by the version of the configuration.
const CRI_2: &str = "io.containerd.grpc.v1.cri";
const CRI_3: &str = "io.containerd.cri.v1.runtime";
/// The first containerd that writes version 3.
const VERSION_3: Version = Version::of(2, 0, 0);

pub(super) fn edit(toml: &mut Toml, shim: &str, way: Way) -> Result<(), SetupError> {
    let version = version(toml)?;
    let cri = if version == 2 { CRI_2 } else { CRI_3 };
    let runtimes = ["plugins", cri, "containerd", "runtimes"];
    let handler = [&runtimes[..], &[NAME]].concat();
    if way == Way::Undo {
        toml.remove(&handler);
        return Ok(());
    }
    let runc = [&runtimes[..], &["runc"]].concat();
    let has_systemd = toml.find(&[&runc[..], &["options", "SystemdCgroup"]].concat());
    let has_systemd = has_systemd.and_then(Item::as_bool) == Some(true);
    toml.put(&[], "version", version)?;
    if version == 2 {
        // containerd 1.x drops its default runtimes once one is listed.
        toml.put(&runc, "runtime_type", RUNTIME_TYPE)?;
    }
    toml.put(&handler, "runtime_type", RUNTIME_TYPE)?;
    toml.put(&handler, "runtime_path", shim)?;
    let there = toml.find(&[&handler[..], &[ANNOTATIONS_KEY]].concat());
    let mut handed_on = there.and_then(Item::as_array).cloned().unwrap_or_default();
    if !handed_on
        .iter()
        .any(|one| one.as_str() == Some(ANNOTATIONS))
    {
        handed_on.push(ANNOTATIONS);
        toml.put(&handler, ANNOTATIONS_KEY, handed_on)?;
    }
    if has_systemd {
        // The way to make cgroups has to agree with the kubelet's, as runc's does.
        let options = [&handler[..], &["options"]].concat();
        toml.put(&options, "SystemdCgroup", true)?;
    }
    Ok(())
}

/// Refuses while a container has the shim: pods of the handler could not start one again.
pub(super) fn nobody_needs(shim: &str) -> Result<(), SetupError> {
    let found = in_use::by(shim).map_err(|source| SetupError::File {
        what: "read",
        path: "/run/containerd".into(),
        source,
    })?;
    SetupError::refuse(found)
}

/// Returns the version of the file, or of files that containerd writes, if there is none.
fn version(toml: &Toml) -> Result<i64, SetupError> {
    match toml.find(&["version"]).and_then(Item::as_integer) {
        Some(version @ (2 | 3)) => Ok(version),
        None if toml.text().is_none() => {
            let containerd = version_of("containerd");
            let is_new = containerd.is_none_or(|containerd| containerd >= VERSION_3);
            Ok(if is_new { 3 } else { 2 })
        }
        _ => {
            Err(toml
                .wrong("it is of neither version 2 nor 3; `containerd config migrate` makes it so"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SHIM: &str = "/usr/bin/containerd-shim-stasis-v2";
    const MAIN: &str = "/etc/containerd/config.toml";

    fn set(text: &str, way: Way) -> String {
        let mut toml = Toml::parse(Path::new(MAIN), Some(text)).unwrap();
        edit(&mut toml, SHIM, way).unwrap();
        toml.text().unwrap()
    }

    #[test]
    fn the_handler_comes_and_goes_in_version_3() {
        let made = set("version = 3\n", Way::Set);
        let table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.stasis]";
        assert_eq!(
            made,
            format!(
                "version = 3\n\n{table}\nruntime_type = \"io.containerd.runc.v2\"\n\
                 runtime_path = \"{SHIM}\"\npod_annotations = [\"io.stasis.*\"]\n"
            )
        );
        assert_eq!(set(&made, Way::Set), made);
        assert_eq!(set(&made, Way::Undo), "version = 3\n");
    }

    #[test]
    fn what_is_there_stays_in_version_2() {
        let main = "version = 2 # mine\n\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  \
                    default_runtime_name = \"nvidia\" # theirs\n\
                    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  \
                    runtime_type = \"io.containerd.runc.v2\" # theirs\n  \
                    options = { SystemdCgroup = true }\n";
        let after = set(main, Way::Set);
        assert!(after.starts_with(main), "{after}");
        assert!(
            after.contains("runtimes.stasis.options]\nSystemdCgroup = true\n"),
            "{after}"
        );
        assert_eq!(set(&after, Way::Set), after);
        assert_eq!(set(&after, Way::Undo), main);
        let none = set("version = 2\n", Way::Set);
        assert!(none.contains("runtimes.runc]\nruntime_type"), "{none}");
    }

    #[test]
    fn annotations_are_added_to_those_that_are_handed_on() {
        let table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.stasis]\n";
        let text = format!("version = 3\n{table}pod_annotations = ['a.b'] # mine\n");
        let after = set(&text, Way::Set);
        assert!(after.contains("['a.b', \"io.stasis.*\"]"), "{after}");
        assert_eq!(set(&after, Way::Set), after);
    }

    #[test]
    fn what_cannot_be_understood_is_not_changed() {
        for wrong in ["root = '/x'", "version = 4", "version = 3\nplugins = 3"] {
            let mut toml = Toml::parse(Path::new(MAIN), Some(wrong)).unwrap();
            let error = edit(&mut toml, SHIM, Way::Set).unwrap_err().to_string();
            assert!(
                error.starts_with("/etc/containerd/config.toml cannot be"),
                "{error}"
            );
        }
    }
}
