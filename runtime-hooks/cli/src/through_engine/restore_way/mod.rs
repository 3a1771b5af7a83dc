//! The engine that knows a container that has ended, and its command for a restore.

mod containerd;
mod docker;
mod podman;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stasis_config::{Flavor, Settings};
use stasis_engine::operation::verb::Verb;
use stasis_engine::request::CriuOption;
use stasis_locate::engine::Engine;

use super::attempt::logged;
use super::checkpoint_way::{absolute, stasis_runtime};
use super::command::{EngineCommand, NoAnswer};
use super::criu_options::{of_restore, words};
use super::no_way::NoWay;

/// The request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The container, as it was named.
    pub(super) name: &'a str,
    /// Its image, in the engine's terms.
    pub(super) image: Option<&'a str>,
    /// Additional options for CRIU's restore.
    pub(super) options: &'a BTreeSet<CriuOption>,
    /// The engine, if one was named.
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

/// Why an engine restores nothing.
enum Not {
    /// It has no such container, or does not answer; the text says why.
    Known(String),
    /// It has the container, and cannot restore it.
    Way(NoWay),
}

type Way = fn(Wanted<'_>) -> Result<RestoreWay, Not>;

const ENGINES: [(Engine, Way); 3] = [
    (Engine::Podman, podman::way),
    (Engine::Docker, docker::way),
    (Engine::Containerd, containerd::way),
];

impl RestoreWay {
    /// Finds the way of the one engine that knows the container.
    pub(super) fn of(wanted: Wanted<'_>) -> Result<Self, NoWay> {
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for (engine, way) in ENGINES {
            if wanted.engine.is_some_and(|only| only != engine) {
                continue;
            }
            match way(wanted) {
                Ok(way) => {
                    let admitted = of_restore(Some(engine), Flavor::Runc).admit(wanted.options);
                    found.push((engine, admitted.map(|()| way).map_err(NoWay::from)));
                }
                Err(Not::Way(no_way)) => found.push((engine, Err(no_way))),
                Err(Not::Known(why)) => unknown.push(format!("{engine}: {why}")),
            }
        }
        let names: Vec<String> = found.iter().map(|(engine, _)| engine.to_string()).collect();
        match (found.pop(), found.is_empty()) {
            (Some((_, way)), true) => way,
            (Some(_), false) => Err(NoWay::Engine(format!(
                "{} have a container or an image {}; choose one with --engine",
                names.join(" and "),
                wanted.name
            ))),
            (None, _) => Err(NoWay::Nowhere {
                name: wanted.name.to_owned(),
                advice: match wanted.engine {
                    Some(_) => "try without --engine",
                    None => "without an engine, name its bundle with --bundle",
                },
                asked: unknown,
            }),
        }
    }

    /// Makes the way by the runtime, for a container in a bundle.
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
                let text =
                    "operations.log has no checkpoint of it; name the image with --image=DIRECTORY";
                NoWay::NoImage(text.to_owned())
            })?,
        };
        let low_level = settings.runtime.resolve();
        let flavor = low_level
            .map_err(|error| NoWay::Engine(error.to_string()))?
            .flavor;
        of_restore(None, flavor).admit(wanted.options)?;
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
                .with_all(words(wanted.options))
                .with(wanted.name),
            id: Some(wanted.name.to_owned()),
            image: Some(image.display().to_string()),
            directory: Some(image),
        })
    }
}

/// Reads three facts of a container.
fn inspect(engine: &str, format: &str, name: &str) -> Result<[String; 3], NoAnswer> {
    let inspect = ["container", "inspect", format, "--", name];
    let answer = EngineCommand::of_client(engine, &inspect).answer()?;
    let mut lines = answer.lines().map(|line| line.trim().to_owned());
    Ok([(); 3].map(|()| lines.next().unwrap_or_default()))
}

/// Refuses a container that has not ended.
pub(super) fn runs(name: &str) -> NoWay {
    NoWay::Engine(format!(
        "{name} runs; a restore needs a container that has ended; nothing was done"
    ))
}

impl From<NoWay> for Not {
    fn from(no_way: NoWay) -> Self {
        Self::Way(no_way)
    }
}

impl From<NoAnswer> for Not {
    fn from(no_answer: NoAnswer) -> Self {
        Self::Known(no_answer.to_string())
    }
}
