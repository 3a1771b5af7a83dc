//! containerd: a runtime handler of CRI, for the RuntimeClass `stasis`. In a configuration of
//! version 3 it has a file of its own, which is imported; one of version 2 names it itself, since
//! there an imported file replaces all that the main one says of CRI.

use std::path::Path;

use toml_edit::{DocumentMut, Item};

use super::change::{self, Change};
use super::programs::Programs;
use super::{SetupError, Way, in_use, tables};
use crate::cli::programs::{Program, Version, version_of};

const MAIN: &str = "/etc/containerd/config.toml";
const OWN: &str = "/etc/containerd/conf.d/stasis.toml";
const IMPORTS: &str = "/etc/containerd/conf.d/*.toml";
const NAME: &str = "stasis";
/// The runtime's name, under which options are handed on (docs/containerd.md).
const RUNTIME_TYPE: &str = "io.containerd.runc.v2";
/// What pods may say to stasis: containerd hands on no annotation of a pod unasked.
const ANNOTATIONS: &str = "io.stasis.*";
/// CRI, by the version of the configuration.
const CRI_2: &str = "io.containerd.grpc.v1.cri";
const CRI_3: &str = "io.containerd.cri.v1.runtime";
/// The first that writes version 3.
const VERSION_3: Version = Version::of(2, 0, 0);

pub(super) fn changes(programs: &Programs, way: Way) -> Result<Vec<Change>, SetupError> {
    if way == Way::Undo {
        nobody_needs(&programs.shim)?;
    }
    let (main, own) = (Path::new(MAIN), Path::new(OWN));
    let before = change::read(main)?;
    let document = tables::parse(main, before.as_deref())?;
    let cri = match version(main, &document, before.as_deref())? {
        2 => {
            let after = with_tables(main, document, CRI_2, &programs.shim, way, Cgroups::Kept)?;
            return Ok(vec![Change::of(main, before, after)]);
        }
        _ => CRI_3,
    };
    let cgroups = Cgroups::of(&document, cri);
    let imports = match way {
        Way::Set => Some(with_imports(main, document)?),
        Way::Undo => before.clone(),
    };
    let own_before = change::read(own)?;
    let own_document = tables::parse(own, own_before.as_deref())?;
    let own_after = with_tables(own, own_document, cri, &programs.shim, way, cgroups)?;
    // What is imported is there before it is named.
    Ok(vec![
        Change::of(own, own_before, own_after),
        Change::of(main, before, imports),
    ])
}

/// Pods of the handler could not start a container again.
fn nobody_needs(shim: &str) -> Result<(), SetupError> {
    let found = in_use::by(shim).map_err(|source| SetupError::File {
        what: "read",
        path: "/run/containerd".into(),
        source,
    })?;
    if found.is_empty() {
        Ok(())
    } else {
        Err(SetupError::InUse(found))
    }
}

/// Who makes cgroups: it has to agree with the kubelet, as that of runc does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cgroups {
    Systemd,
    Cgroupfs,
    /// The same file says it.
    Kept,
}

impl Cgroups {
    fn of(document: &DocumentMut, cri: &str) -> Self {
        let keys = ["plugins", cri, "containerd", "runtimes", "runc", "options"];
        let options = tables::find(document, &keys);
        let systemd = options.and_then(|options| options.get("SystemdCgroup")?.as_bool());
        match systemd {
            Some(true) => Self::Systemd,
            _ => Self::Cgroupfs,
        }
    }
}

/// Of the file; of what containerd writes, if there is none.
fn version(path: &Path, document: &DocumentMut, text: Option<&str>) -> Result<i64, SetupError> {
    let is_empty = text.is_none_or(|text| text.trim().is_empty());
    let version = tables::find(document, &["version"]).and_then(|version| version.as_integer());
    match version {
        Some(version @ (2 | 3)) => Ok(version),
        None if is_empty => {
            let containerd = version_of("containerd", Program::Containerd);
            let new = containerd.is_none_or(|containerd| containerd >= VERSION_3);
            Ok(if new { 3 } else { 2 })
        }
        _ => Err(SetupError::Content {
            path: path.to_owned(),
            why: "it is of neither version 2 nor 3; `containerd config migrate` makes it so"
                .to_owned(),
        }),
    }
}

/// The handler itself.
fn with_tables(
    path: &Path,
    mut document: DocumentMut,
    cri: &str,
    shim: &str,
    way: Way,
    cgroups: Cgroups,
) -> Result<Option<String>, SetupError> {
    let runtimes = ["plugins", cri, "containerd", "runtimes"];
    let handler = [&runtimes[..], &[NAME]].concat();
    if way == Way::Undo {
        tables::remove(document.as_table_mut(), &handler);
        let is_bare = document.iter().all(|(key, _)| key == "version");
        return Ok((!is_bare || cri == CRI_2 && !document.is_empty()).then(|| document.to_string()));
    }
    let cgroups = if cgroups == Cgroups::Kept {
        Cgroups::of(&document, cri)
    } else {
        cgroups
    };
    tables::put(
        path,
        &mut document,
        &[],
        "version",
        if cri == CRI_2 { 2 } else { 3 },
    )?;
    if cri == CRI_2 {
        // containerd 1.x forgets its own once a runtime is listed.
        let runc = [&runtimes[..], &["runc"]].concat();
        tables::put(path, &mut document, &runc, "runtime_type", RUNTIME_TYPE)?;
    }
    tables::put(path, &mut document, &handler, "runtime_type", RUNTIME_TYPE)?;
    tables::put(path, &mut document, &handler, "runtime_path", shim)?;
    hand_annotations_on(path, &mut document, &handler)?;
    if cgroups == Cgroups::Systemd {
        let options = [&handler[..], &["options"]].concat();
        tables::put(path, &mut document, &options, "SystemdCgroup", true)?;
    }
    Ok(Some(document.to_string()))
}

fn hand_annotations_on(
    path: &Path,
    document: &mut DocumentMut,
    handler: &[&str],
) -> Result<(), SetupError> {
    const KEY: &str = "pod_annotations";
    let there = tables::find(document, &[handler, &[KEY]].concat()).and_then(Item::as_array);
    let mut handed_on = there.cloned().unwrap_or_default();
    if !handed_on
        .iter()
        .any(|one| one.as_str() == Some(ANNOTATIONS))
    {
        handed_on.push(ANNOTATIONS);
        tables::put(path, document, handler, KEY, handed_on)?;
    }
    Ok(())
}

fn with_imports(path: &Path, mut document: DocumentMut) -> Result<String, SetupError> {
    let text = document.to_string();
    let imports = tables::find(&document, &["imports"]).and_then(|imports| imports.as_array());
    let mut imports = imports.cloned().unwrap_or_default();
    if imports
        .iter()
        .any(|import| import.as_str() == Some(IMPORTS))
    {
        return Ok(text);
    }
    imports.push(IMPORTS);
    tables::put(path, &mut document, &[], "version", 3)?;
    tables::put(path, &mut document, &[], "imports", imports)?;
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIM: &str = "/usr/bin/containerd-shim-stasis-v2";

    fn set(cri: &str, text: Option<&str>, way: Way, cgroups: Cgroups) -> Option<String> {
        let path = Path::new("x");
        let document = tables::parse(path, text).unwrap();
        with_tables(path, document, cri, SHIM, way, cgroups).unwrap()
    }

    #[test]
    fn a_file_of_its_own_in_version_3() {
        let made = set(CRI_3, None, Way::Set, Cgroups::Systemd).unwrap();
        let table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.stasis";
        assert_eq!(
            made,
            format!(
                "version = 3\n\n{table}]\nruntime_type = \"io.containerd.runc.v2\"\n\
                 runtime_path = \"{SHIM}\"\npod_annotations = [\"io.stasis.*\"]\n\n\
                 {table}.options]\nSystemdCgroup = true\n"
            )
        );
        let again = set(CRI_3, Some(&made), Way::Set, Cgroups::Systemd);
        assert_eq!(again.as_ref(), Some(&made));
        assert_eq!(set(CRI_3, Some(&made), Way::Undo, Cgroups::Systemd), None);
    }

    #[test]
    fn tables_of_the_main_file_in_version_2() {
        let main = "version = 2 # mine\n\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  \
                    default_runtime_name = \"nvidia\" # theirs\n\
                    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  \
                    runtime_type = \"io.containerd.runc.v2\" # theirs\n  \
                    options = { SystemdCgroup = true }\n";
        let after = set(CRI_2, Some(main), Way::Set, Cgroups::Kept).unwrap();
        assert!(after.starts_with(main), "{after}");
        assert!(
            after.contains("runtimes.stasis.options]\nSystemdCgroup = true\n"),
            "{after}"
        );
        let again = set(CRI_2, Some(&after), Way::Set, Cgroups::Kept).unwrap();
        assert_eq!(again, after);
        let undone = set(CRI_2, Some(&after), Way::Undo, Cgroups::Kept).unwrap();
        assert_eq!(undone, main);
        let none = set(CRI_2, Some("version = 2\n"), Way::Set, Cgroups::Kept).unwrap();
        assert!(none.contains("runtimes.runc]\nruntime_type"), "{none}");
    }

    #[test]
    fn annotations_are_added_to_those_that_are_handed_on() {
        let table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.stasis]\n";
        let text = format!("version = 3\n{table}pod_annotations = ['a.b'] # mine\n");
        let after = set(CRI_3, Some(&text), Way::Set, Cgroups::Cgroupfs).unwrap();
        assert!(after.contains("['a.b', \"io.stasis.*\"]"), "{after}");
        let again = set(CRI_3, Some(&after), Way::Set, Cgroups::Cgroupfs).unwrap();
        assert_eq!(again, after);
    }

    #[test]
    fn imports_are_added_to_those_that_are_there() {
        let with = |text: &str| {
            let path = Path::new("x");
            with_imports(path, tables::parse(path, Some(text)).unwrap()).unwrap()
        };
        let main = "version = 3\nimports = [\"/etc/other/*.toml\"]\nroot = \"/x\"\n";
        let after = with(main);
        assert_eq!(
            after,
            "version = 3\nimports = [\"/etc/other/*.toml\", \"/etc/containerd/conf.d/*.toml\"]\n\
             root = \"/x\"\n"
        );
        assert_eq!(with(&after), after);
        assert_eq!(
            with(""),
            "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"
        );
    }

    #[test]
    fn what_cannot_be_understood_is_not_changed() {
        let path = Path::new("/etc/containerd/config.toml");
        let version = |text: &str| {
            let document = tables::parse(path, Some(text))?;
            version(path, &document, Some(text))
        };
        assert_eq!(version("version = 2").unwrap(), 2);
        for wrong in ["root = '/x'", "version = 4", "version = ["] {
            let error = version(wrong).unwrap_err().to_string();
            assert!(
                error.starts_with("/etc/containerd/config.toml cannot be"),
                "{error}"
            );
        }
        let text = Some("plugins = 3");
        let document = tables::parse(path, text).unwrap();
        let error = with_tables(path, document, CRI_3, SHIM, Way::Set, Cgroups::Cgroupfs);
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with("plugins is no table"), "{error}");
    }
}
