//! Engines' settings for stasis, in the files that `stasis setup` writes, and other settings that
//! keep engines from making checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stasis_linux::error_chain;

use super::{Finding, fault, warning};
use crate::setup::change;
use crate::setup::tables::Toml;

/// The runtime's, or handler's, name in each engine's settings.
const NAME: &str = "stasis";
const DOCKER: &str = "/etc/docker/daemon.json";
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

pub(super) fn findings() -> Vec<Finding> {
    let mut found = docker();
    for engine in &ENGINES {
        let mut files = Vec::new();
        for path in engine.paths() {
            match Toml::read(&path) {
                Ok(file) => files.push(file),
                Err(error) => found.push(unreadable(engine.name, error_chain(&error))),
            }
        }
        found.extend(engine.of(&files));
    }
    found
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

    fn of(&self, files: &[Toml]) -> Vec<Finding> {
        let last = |keys: Keys| {
            let mut files = files.iter().rev();
            files.find_map(|file| Some((&*file.path, file.find(keys)?)))
        };
        let mut found = restores(files);
        let Some((path, runtime)) = self.runtime.iter().find_map(|keys| last(keys)) else {
            return found;
        };
        let places = runtime.as_array().into_iter().flatten();
        let places: Vec<&str> = match runtime.as_str() {
            Some(program) => vec![program],
            None => places.filter_map(|place| place.as_str()).collect(),
        };
        // podman takes the first that exists.
        if !places.iter().any(|place| Path::new(place).exists()) {
            let program = places.first().copied().unwrap_or_default();
            found.push(missing(program, path, self.name));
        }
        for (keys, value) in self.forbid {
            let Some((path, set)) = last(keys) else {
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
                    "take that out, and restart the engine",
                ));
            }
        }
        found
    }
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

fn docker() -> Vec<Finding> {
    let text = match change::read(Path::new(DOCKER)) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => return vec![unreadable("docker", error_chain(&error))],
    };
    if text.trim().is_empty() {
        return Vec::new();
    }
    let settings: Value = match serde_json::from_str(&text) {
        Ok(settings) => settings,
        Err(error) => return vec![unreadable("docker", format!("{DOCKER}: {error}"))],
    };
    let Some(runtime) = settings["runtimes"][NAME]["path"].as_str() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if !Path::new(runtime).exists() {
        found.push(missing(runtime, Path::new(DOCKER), "docker"));
    }
    if settings["experimental"] != true {
        found.push(warning(
            "docker-experimental",
            format!("{DOCKER} is not \"experimental\": Docker has no checkpoints"),
            "stasis setup docker",
        ));
    }
    found
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
        format!("{} names {program}, which is not there", file.display()),
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
