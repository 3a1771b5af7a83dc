//! Engines' settings for stasis, in the files that `stasis setup` writes, and other settings that
//! keep engines from making checkpoints.

mod docker;

use std::fs;
use std::path::{Path, PathBuf};

use stasis_linux::error_chain;
use toml_edit::Item;

use super::{Finding, fault, ok, warning};
use crate::programs::{in_path, version_at};
use crate::setup::tables::Toml;

/// The runtime's, or handler's, name in each engine's settings.
const NAME: &str = "stasis";
/// containerd's CRI, in both versions of the settings.
const CRI_2: &str = "io.containerd.grpc.v1.cri";
const CRI_3: &str = "io.containerd.cri.v1.runtime";
/// The setting by which containerd restores pods from images.
const RESTORES: &str = "enable_experimental_restore_via_create";

/// Keys in a file, one below the other.
type Keys = &'static [&'static str];

/// An engine whose settings are TOML: a main file, and the files of a directory, which are read
/// after it in the order of their names. The last one counts.
struct Engine {
    name: &'static str,
    main: &'static str,
    directory: &'static str,
    /// The program of the runtime, or the list of its places.
    runtime: &'static [Keys],
    /// Settings that forbid checkpoints, with this value.
    forbid: &'static [(Keys, &'static str)],
}

const ENGINES: [Engine; 3] = [
    Engine {
        name: "podman",
        main: "/etc/containers/containers.conf",
        directory: "/etc/containers/containers.conf.d",
        runtime: &[&["engine", "runtimes", NAME]],
        forbid: &[],
    },
    Engine {
        name: "containerd",
        main: "/etc/containerd/config.toml",
        directory: "/etc/containerd/conf.d",
        runtime: &[
            &[
                "plugins",
                CRI_2,
                "containerd",
                "runtimes",
                NAME,
                "runtime_path",
            ],
            &[
                "plugins",
                CRI_3,
                "containerd",
                "runtimes",
                NAME,
                "runtime_path",
            ],
        ],
        forbid: &[
            (&["plugins", CRI_2, "enable_criu"], "false"),
            (&["plugins", CRI_3, "enable_criu"], "false"),
        ],
    },
    Engine {
        name: "crio",
        main: "/etc/crio/crio.conf",
        directory: "/etc/crio/crio.conf.d",
        runtime: &[&["crio", "runtime", "runtimes", NAME, "runtime_path"]],
        forbid: &[
            // crio.conf(5), and its counterpart in earlier versions.
            (
                &["crio", "checkpoint_restore", "container_level_enabled"],
                "none",
            ),
            (&["crio", "runtime", "enable_criu_support"], "false"),
        ],
    },
];

/// Reports faults of engines' settings, and each installed engine.
pub(super) fn findings() -> Vec<Finding> {
    let mut found = docker::findings();
    for engine in &ENGINES {
        let (files, unread) = engine.files();
        found.extend(unread);
        found.extend(engine.of(&files));
        found.extend(installed(engine.name, engine.runtime_in(&files).is_some()));
    }
    found
}

/// Returns the programs of stasis that engines call, according to their settings.
pub(super) fn programs() -> Vec<PathBuf> {
    let of_engine = |engine: &Engine| {
        let (files, _) = engine.files();
        let places = engine.runtime_in(&files).map(|(_, places)| places);
        places.unwrap_or_default()
    };
    let places = ENGINES.iter().flat_map(of_engine);
    places.chain(docker::runtime()).map(PathBuf::from).collect()
}

/// Reports an engine, if it is installed: its version, and whether it knows stasis.
fn installed(engine: &str, knows_stasis: bool) -> Option<Finding> {
    let program = in_path(engine)?;
    let version = version_at(&program).map(|(_, version)| version.to_string());
    let version = version.unwrap_or_else(|| "of unknown version".to_owned());
    let stasis = match knows_stasis {
        true => "uses stasis".to_owned(),
        false => format!("does not use stasis (stasis setup {engine})"),
    };
    Some(ok(engine, format!("{version}, {stasis}")))
}

impl Engine {
    fn paths(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
        paths.sort();
        paths.insert(0, self.main.into());
        paths
    }

    /// Reads its settings; a file that cannot be read is a fault.
    fn files(&self) -> (Vec<Toml>, Vec<Finding>) {
        let (mut files, mut found) = (Vec::new(), Vec::new());
        for path in self.paths() {
            match Toml::read(&path) {
                Ok(file) => files.push(file),
                Err(error) => found.push(unreadable(self.name, error_chain(&error))),
            }
        }
        (files, found)
    }

    /// Returns the file that names the runtime, and the places of its program.
    fn runtime_in<'f>(&self, files: &'f [Toml]) -> Option<(&'f Path, Vec<String>)> {
        let keys = self.runtime.iter();
        let (path, runtime) = keys.clone().find_map(|keys| last(files, keys))?;
        let places = runtime.as_array().into_iter().flatten();
        let places = match runtime.as_str() {
            Some(program) => vec![program.to_owned()],
            None => places
                .filter_map(|place| Some(place.as_str()?.to_owned()))
                .collect(),
        };
        Some((path, places))
    }

    fn of(&self, files: &[Toml]) -> Vec<Finding> {
        let mut found = restores(files);
        let Some((path, places)) = self.runtime_in(files) else {
            return found;
        };
        // podman takes the first that exists.
        if !places.iter().any(|place| Path::new(place).exists()) {
            let program = places.first().map(String::as_str).unwrap_or_default();
            found.push(missing(program, path, self.name));
        }
        for (keys, value) in self.forbid {
            let Some((path, set)) = last(files, keys) else {
                continue;
            };
            let set = match (set.as_str(), set.as_bool()) {
                (Some(text), _) => text.to_owned(),
                (None, set) => set.map(|set| set.to_string()).unwrap_or_default(),
            };
            if set == *value {
                let key = keys.last().copied().unwrap_or_default();
                found.push(warning(
                    &format!("{}-checkpoints", self.name),
                    format!("{} forbids checkpoints: {key} = {value}", path.display()),
                    "remove that setting, and restart the engine",
                ));
            }
        }
        found
    }
}

/// Finds a setting in the last file that has it.
fn last(files: &[Toml], keys: Keys) -> Option<(&Path, &Item)> {
    let mut files = files.iter().rev();
    files.find_map(|file| Some((&*file.path, file.find(keys)?)))
}

/// Warns if containerd restores pods from any image that is a checkpoint.
fn restores(files: &[Toml]) -> Vec<Finding> {
    let is_on = |file: &&Toml| {
        let keys = [CRI_2, CRI_3].map(|cri| ["plugins", cri, RESTORES]);
        let mut set = keys.iter().filter_map(|keys| file.find(keys)?.as_bool());
        set.any(|is_on| is_on)
    };
    let found = files.iter().filter(is_on).map(|file| {
        let path = file.path.display();
        warning(
            "containerd-restores",
            format!("{path} restores pods from any image that is a checkpoint"),
            "see docs/containerd.md, \"Who may restore is root\"",
        )
    });
    found.collect()
}

fn unreadable(engine: &str, why: String) -> Finding {
    fault(
        &format!("{engine}-settings"),
        why,
        "correct it: the engine may not start with it",
    )
}

/// Reports that the stasis program named in a file does not exist.
fn missing(program: &str, file: &Path, engine: &str) -> Finding {
    fault(
        &format!("{engine}-runtime"),
        format!("{} names {program}, which does not exist", file.display()),
        format!("stasis setup {engine}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ids of findings in files with these texts.
    fn found(engine: &str, files: &[&str]) -> Vec<String> {
        let files = files
            .iter()
            .map(|text| Toml::parse(Path::new("x"), Some(text)).unwrap());
        let files: Vec<Toml> = files.collect();
        let engine = ENGINES.iter().find(|one| one.name == engine).unwrap();
        engine
            .of(&files)
            .into_iter()
            .map(|found| found.id)
            .collect()
    }

    #[test]
    fn any_version_of_containerds_settings_counts() {
        let found = |files: &[&str]| found("containerd", files);
        let ours = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.stasis]\n\
                    runtime_path = '/'";
        let older = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.stasis]\n\
                     runtime_path = '/nil'";
        let none = "[plugins.'io.containerd.cri.v1.runtime']\nenable_criu = false";
        assert_eq!(found(&[ours]), [""; 0]);
        assert_eq!(found(&[older]), ["containerd-runtime"]);
        assert_eq!(found(&[none, ours]), ["containerd-checkpoints"]);
        assert_eq!(found(&[none]), [""; 0], "containerd does not know stasis");
    }

    #[test]
    fn the_last_file_counts() {
        let found = |files: &[&str]| found("crio", files);
        let ours = "[crio.runtime.runtimes.stasis]\nruntime_path = '/'";
        let gone = "[crio.runtime.runtimes.stasis]\nruntime_path = '/nil'";
        let none = "[crio.checkpoint_restore]\ncontainer_level_enabled = 'none'";
        let all = "[crio.checkpoint_restore]\ncontainer_level_enabled = 'checkpoint_restore'";
        let earlier = "[crio.runtime]\nenable_criu_support = false # why";
        assert_eq!(
            found(&[none, earlier]),
            [""; 0],
            "CRI-O does not know stasis"
        );
        assert_eq!(found(&[gone, ours]), [""; 0]);
        assert_eq!(found(&[ours, gone]), ["crio-runtime"]);
        assert_eq!(found(&[ours, none]), ["crio-checkpoints"]);
        assert_eq!(found(&[none, ours, all]), [""; 0]);
        assert_eq!(found(&[ours, earlier]), ["crio-checkpoints"]);
    }
}
