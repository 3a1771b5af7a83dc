//! Docker's settings.

use std::path::Path;

use serde_json::Value;
use stasis_linux::error_chain;

use super::{NAME, installed, missing, unreadable};
use crate::doctor::{Finding, warning};
use crate::setup::change;

const SETTINGS: &str = "/etc/docker/daemon.json";
const ENGINE: &str = "docker";

/// Reports faults of the settings, and Docker, if it is installed.
pub(super) fn findings() -> Vec<Finding> {
    let mut found = match read() {
        Ok(Some(settings)) => of(&settings),
        Ok(None) => Vec::new(),
        Err(why) => vec![unreadable(ENGINE, why)],
    };
    found.extend(installed(ENGINE, runtime().is_some()));
    found
}

/// Returns the program of the runtime "stasis".
pub(super) fn runtime() -> Option<String> {
    let settings = read().ok()??;
    settings["runtimes"][NAME]["path"]
        .as_str()
        .map(str::to_owned)
}

fn read() -> Result<Option<Value>, String> {
    let text = change::read(Path::new(SETTINGS)).map_err(|error| error_chain(&error))?;
    let text = text.unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(None);
    }
    let settings = serde_json::from_str(&text);
    settings.map_err(|error| format!("{SETTINGS}: {error}"))
}

fn of(settings: &Value) -> Vec<Finding> {
    let Some(runtime) = settings["runtimes"][NAME]["path"].as_str() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if !Path::new(runtime).exists() {
        found.push(missing(runtime, Path::new(SETTINGS), ENGINE));
    }
    if settings["experimental"] != true {
        found.push(warning(
            "docker-experimental",
            format!("{SETTINGS} is not \"experimental\": Docker has no checkpoints"),
            "stasis setup docker",
        ));
    }
    found
}
