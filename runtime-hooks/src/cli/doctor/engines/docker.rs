//! Docker's settings.

use std::path::Path;

use serde_json::Value;
use stasis_linux::error_chain;

use super::{NAME, missing, unreadable};
use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;
use crate::cli::setup::change;

pub(super) const SETTINGS: &str = "/etc/docker/daemon.json";

pub(super) fn findings() -> Vec<Finding> {
    match change::read(Path::new(SETTINGS)) {
        Ok(None) => Vec::new(),
        Ok(Some(text)) if text.trim().is_empty() => Vec::new(),
        Ok(Some(text)) => of(&text),
        Err(error) => vec![unreadable("docker", error_chain(&error))],
    }
}

fn of(text: &str) -> Vec<Finding> {
    let settings: Value = match serde_json::from_str(text) {
        Ok(settings) => settings,
        Err(error) => return vec![unreadable("docker", format!("{SETTINGS}: {error}"))],
    };
    let Some(runtime) = settings["runtimes"][NAME]["path"].as_str() else {
        return Vec::new();
    };
    let mut found = Vec::from_iter(missing(runtime, Path::new(SETTINGS), "docker"));
    if settings["experimental"] != true {
        found.push(warning(
            "docker-experimental",
            format!("{SETTINGS} is not \"experimental\": Docker has no checkpoints"),
            "stasis setup docker",
        ));
    }
    found
}
