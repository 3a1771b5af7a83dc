//! podman: keeps a checkpoint with its container, or imports an archive as a new one.

use std::path::Path;

use stasis_locate::engine::Engine;

use super::{EngineCommand, Not, RestoreWay, Wanted, inspect, runs};
use crate::through_engine::criu_options::words;
use crate::through_engine::no_way::NoWay;

const FACTS: &str = "--format={{.Id}}\n{{.State.Running}}\n{{.State.CheckpointPath}}";

pub(super) fn way(wanted: Wanted<'_>) -> Result<RestoreWay, Not> {
    let restore = EngineCommand::of_client("podman", &["container", "restore"]);
    let restore = restore.with_all(words(wanted.options));
    if let Some(archive) = wanted.image {
        return import(restore, wanted, archive);
    }
    let [id, running, directory] = inspect("podman", FACTS, wanted.name)?;
    if running == "true" {
        return Err(runs(wanted.name).into());
    }
    if directory.is_empty() {
        return Err(NoWay::NoImage(format!(
            "podman keeps no checkpoint of {}; if it is in an archive, name it with --image=FILE",
            wanted.name
        ))
        .into());
    }
    Ok(RestoreWay {
        engine: Some(Engine::Podman),
        command: restore.with(&id),
        id: Some(id),
        image: Some(directory.clone()),
        directory: Some(directory.into()),
    })
}

fn import(restore: EngineCommand, wanted: Wanted<'_>, archive: &str) -> Result<RestoreWay, Not> {
    if !Path::new(archive).is_file() {
        let text = format!("podman imports archives, and {archive} is no file");
        return Err(match wanted.engine {
            Some(_) => NoWay::NoImage(text).into(),
            None => Not::Known(text),
        });
    }
    Ok(RestoreWay {
        engine: Some(Engine::Podman),
        command: restore.with_all(["--import", archive, "--name", wanted.name]),
        id: None,
        image: Some(archive.to_owned()),
        directory: None,
    })
}
