//! Which engine knows a container that has ended, and by which command it restores it.

use std::fs;
use std::path::{Path, PathBuf};

use stasis_config::Settings;

use super::attempt::logged;
use super::checkpoint_way::{NoWay, absolute, image_prefix, is_path, stasis_runtime};
use super::command::EngineCommand;
use crate::cli::locate::engine::Engine;
use crate::operation::verb::Verb;

/// The namespaces of containerd that belong to other engines.
const OF_OTHERS: [&str; 2] = ["moby", "k8s.io"];

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The container, as it was named.
    pub(super) name: &'a str,
    /// Its image, in the engine's terms.
    pub(super) image: Option<&'a str>,
    /// The engine, if it was said.
    pub(super) engine: Option<Engine>,
}

/// How a container is restored.
#[derive(Debug)]
pub(super) struct RestoreWay {
    pub(super) engine: Option<Engine>,
    pub(super) command: EngineCommand,
    /// Its id; `None` if it gets a new one.
    pub(super) id: Option<String>,
    /// The image, as the engine names it; `None` if the engine keeps it with the container.
    pub(super) image: Option<String>,
    /// The directory of the image, if that is known.
    pub(super) directory: Option<PathBuf>,
}

impl RestoreWay {
    /// By the one engine that knows the container.
    pub(super) fn of(wanted: Wanted<'_>) -> Result<Self, NoWay> {
        let engines = [
            (Engine::Podman, podman as fn(_) -> _),
            (Engine::Docker, docker),
            (Engine::Containerd, containerd),
        ];
        let asked = engines
            .into_iter()
            .filter(|(engine, _)| wanted.engine.is_none_or(|only| only == *engine));
        let mut found: Vec<_> = asked
            .filter_map(|(engine, way)| Some((engine, way(wanted)?)))
            .collect();
        let names: Vec<String> = found.iter().map(|(engine, _)| engine.to_string()).collect();
        match (found.pop(), found.is_empty()) {
            (Some((_, way)), true) => way,
            (Some(_), false) => Err(NoWay::Engine(format!(
                "{} have a container or an image of {}; say which with --engine",
                names.join(" and "),
                wanted.name
            ))),
            (None, _) => Err(NoWay::NoContainer(wanted.name.to_owned())),
        }
    }

    /// By the runtime, of a container in a bundle.
    pub(super) fn of_runtime(
        settings: &Settings,
        wanted: Wanted<'_>,
        bundle: &Path,
        root: Option<&Path>,
        config: Option<&Path>,
    ) -> Result<Self, NoWay> {
        let last = || {
            let lines = logged(&settings.paths.log_dir, wanted.name, Verb::Checkpoint);
            let done = lines.into_iter().rev().filter(|line| !line.has_failed());
            done.filter_map(|line| line.image_path).next()
        };
        let image = match wanted.image {
            Some(image) => absolute(image)?,
            None => last().ok_or_else(|| {
                let text = "operations.log has no checkpoint of it; say --image=DIRECTORY";
                NoWay::NoImage(text.to_owned())
            })?,
        };
        let low_level = settings.runtime.resolve();
        let flavor = low_level
            .map_err(|error| NoWay::Engine(error.to_string()))?
            .flavor;
        let mut command = stasis_runtime(settings, flavor, config)?;
        if let Some(root) = root {
            command = command.with("--root").with(root);
        }
        let bundle = std::path::absolute(bundle);
        let bundle = bundle.map_err(|error| NoWay::NoImage(error.to_string()))?;
        Ok(Self {
            engine: None,
            command: command
                .with_all(["restore", "--detach", "--bundle"])
                .with(bundle)
                .with("--image-path")
                .with(&image)
                .with(wanted.name),
            id: Some(wanted.name.to_owned()),
            image: Some(image.display().to_string()),
            directory: Some(image),
        })
    }
}

/// `None` if podman does not know it.
fn podman(wanted: Wanted<'_>) -> Option<Result<RestoreWay, NoWay>> {
    let restore = EngineCommand::of_client("podman", &["container", "restore"]);
    if let Some(archive) = wanted.image {
        // It is imported as a new container.
        let is_archive = is_path(archive) && Path::new(archive).is_file();
        return is_archive.then(|| {
            Ok(RestoreWay {
                engine: Some(Engine::Podman),
                command: restore.with_all(["--import", archive, "--name", wanted.name]),
                id: None,
                image: Some(archive.to_owned()),
                directory: None,
            })
        });
    }
    let format = "--format={{.Id}}\n{{.State.Running}}\n{{.State.CheckpointPath}}";
    let known = inspect("podman", format, wanted.name)?;
    let [id, running, directory] = known;
    Some(if running == "true" {
        Err(runs(wanted.name))
    } else if directory.is_empty() {
        let text = format!("podman keeps no checkpoint of {}", wanted.name);
        Err(NoWay::NoImage(text))
    } else {
        Ok(RestoreWay {
            engine: Some(Engine::Podman),
            command: restore.with(&id),
            id: Some(id),
            image: Some(directory.clone()),
            directory: Some(directory.into()),
        })
    })
}

/// `None` if Docker does not know it. Docker lists checkpoints without their times, so they are
/// looked for where it keeps them: beside the files that it mounts into the container.
fn docker(wanted: Wanted<'_>) -> Option<Result<RestoreWay, NoWay>> {
    let format = "--format={{.Id}}\n{{.State.Running}}\n{{.HostnamePath}}";
    let [id, running, hostname] = inspect("docker", format, wanted.name)?;
    let all = Path::new(&hostname).with_file_name("checkpoints");
    let image = wanted.image.map(str::to_owned).or_else(|| newest_in(&all));
    let text = || format!("Docker keeps no checkpoint of {}", wanted.name);
    Some(match image {
        _ if running == "true" => Err(runs(wanted.name)),
        None => Err(NoWay::NoImage(text())),
        Some(image) => Ok(RestoreWay {
            engine: Some(Engine::Docker),
            command: EngineCommand::of_client("docker", &["start", "--checkpoint"])
                .with(&image)
                .with(&id),
            id: Some(id),
            directory: Some(all.join(&image)),
            image: Some(image),
        }),
    })
}

/// `None` if no namespace has the container, or an image of it.
fn containerd(wanted: Wanted<'_>) -> Option<Result<RestoreWay, NoWay>> {
    let namespaces = ctr(&["namespaces", "ls", "-q"])?;
    let own = namespaces.lines().filter(|name| !OF_OTHERS.contains(name));
    own.filter_map(|namespace| in_namespace(namespace, wanted))
        .next()
}

fn in_namespace(namespace: &str, wanted: Wanted<'_>) -> Option<Result<RestoreWay, NoWay>> {
    let list = |what| ctr(&["--namespace", namespace, what, "ls", "-q"]).unwrap_or_default();
    let (containers, images) = (list("containers"), list("images"));
    let is_there = containers.lines().any(|id| id == wanted.name);
    let prefix = image_prefix(wanted.name);
    // Their names end with the time.
    let image = images
        .lines()
        .filter(|image| match wanted.image {
            Some(wanted) => *image == wanted,
            None => image.starts_with(&prefix),
        })
        .max();
    let name = wanted.name;
    Some(match image {
        None if !is_there => return None,
        None if wanted.image.is_some_and(is_path) => Err(NoWay::Engine(format!(
            "ctr restores no container from a directory, though clients of containerd's API do \
             (CreateTask with criu_image_path); `stasis checkpoint {name} --leave-running` without \
             --image writes what it restores"
        ))),
        None => Err(NoWay::NoImage(format!(
            "containerd has no such image of {name}"
        ))),
        Some(_) if is_there => Err(NoWay::Engine(format!(
            "containerd still has the container {name}, and ctr restores it as a new one; `ctr \
             --namespace {namespace} containers rm {name}` removes it, once its task has ended"
        ))),
        Some(image) => Ok(RestoreWay {
            engine: Some(Engine::Containerd),
            command: EngineCommand::of_client("ctr", &["--namespace", namespace]).with_all([
                "containers",
                "restore",
                "--rw",
                "--live",
                name,
                image,
            ]),
            id: Some(name.to_owned()),
            image: Some(image.to_owned()),
            directory: None,
        }),
    })
}

fn ctr(arguments: &[&str]) -> Option<String> {
    EngineCommand::of_client("ctr", arguments).answer()
}

/// Three facts of a container; `None` if the engine does not know it, or does not answer.
fn inspect(engine: &str, format: &str, name: &str) -> Option<[String; 3]> {
    let inspect = ["container", "inspect", format, "--", name];
    let answer = EngineCommand::of_client(engine, &inspect).answer()?;
    let mut lines = answer.lines().map(|line| line.trim().to_owned());
    Some([
        lines.next()?,
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    ])
}

fn runs(name: &str) -> NoWay {
    NoWay::Engine(format!("{name} runs; nothing was done"))
}

/// The directory that was made last.
fn newest_in(directory: &Path) -> Option<String> {
    let entries = fs::read_dir(directory).ok()?;
    let dated = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let made = entry.metadata().ok()?.modified().ok()?;
        Some((made, entry.file_name().into_string().ok()?))
    });
    dated.max().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_checkpoint_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(newest_in(directory.path()), None);
        for (name, second) in [("z", 1), ("a", 9), ("m", 5)] {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
        }
        assert_eq!(newest_in(directory.path()), Some("a".to_owned()));
    }
}
