//! The command by which each engine makes a checkpoint, and the place of the image.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stasis_config::{Flavor, Settings};
use stasis_engine::request::{AfterDump, CriuOption};
use stasis_host::time::rfc3339;
use stasis_linux::cgroup::FreezerState;
use stasis_locate::Located;
use stasis_locate::engine::Engine;

use super::command::EngineCommand;
use super::criu_options::{of_checkpoint, words};
use super::no_way::NoWay;

/// crictl gives up a call after two seconds, and its caller gets no archive then.
const CRICTL_TIMEOUT: &str = "--timeout=24h";

/// The request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The image's place, in the engine's terms.
    pub(super) image: Option<&'a str>,
    pub(super) after: AfterDump,
    /// Additional options for CRIU's dump.
    pub(super) options: &'a BTreeSet<CriuOption>,
    /// The file of the settings, if one was named.
    pub(super) config: Option<&'a Path>,
}

/// How a container is checkpointed.
#[derive(Debug)]
pub(super) struct CheckpointWay {
    pub(super) command: EngineCommand,
    /// The image's name; `None` if the engine keeps it with the container.
    pub(super) image: Option<String>,
    /// The image's directory, if that is known.
    pub(super) directory: Option<PathBuf>,
}

impl CheckpointWay {
    pub(super) fn of(
        settings: &Settings,
        located: &Located,
        engine: Option<Engine>,
        wanted: Wanted<'_>,
    ) -> Result<Self, NoWay> {
        of_checkpoint(engine, located.flavor).admit(wanted.options)?;
        match engine {
            Some(Engine::Podman) => podman(located, wanted),
            Some(Engine::Docker) => Ok(docker(located, wanted)),
            Some(Engine::Containerd | Engine::Nerdctl) => containerd(located, wanted),
            Some(Engine::Cri | Engine::CriO) => cri(located, wanted),
            None => runtime(settings, located, wanted),
        }
    }
}

fn podman(located: &Located, wanted: Wanted<'_>) -> Result<CheckpointWay, NoWay> {
    let container = &located.container;
    if let Ok(FreezerState::Frozen) = container.cgroup().freezer_state() {
        let name = located.known().name;
        let name = name.unwrap_or_else(|| container.id().to_owned());
        return Err(NoWay::Paused(name));
    }
    let command = EngineCommand::of_client("podman", &["container", "checkpoint"]);
    let mut command = command.with_all(words(wanted.options));
    if wanted.after == AfterDump::LeaveRunning {
        command = command.with("--leave-running");
    }
    if let Some(archive) = wanted.image {
        command = command.with("--export").with(archive);
    }
    // CRIU writes to the container's own directory in either case.
    let bundle = container.bundle();
    Ok(CheckpointWay {
        command: command.with(container.id()),
        image: wanted.image.map(str::to_owned),
        directory: bundle.map(|bundle| bundle.join("checkpoint")),
    })
}

fn docker(located: &Located, wanted: Wanted<'_>) -> CheckpointWay {
    let mut command = EngineCommand::of_client("docker", &["checkpoint", "create"]);
    if wanted.after == AfterDump::LeaveRunning {
        command = command.with("--leave-running");
    }
    let name = wanted
        .image
        .map_or_else(|| format!("stasis-{}", stamp()), str::to_owned);
    CheckpointWay {
        command: command.with(located.container.id()).with(&name),
        image: Some(name),
        directory: None,
    }
}

/// `ctr tasks checkpoint` writes a directory; `ctr containers checkpoint` an image of containerd's,
/// which is the kind that `ctr containers restore` takes, and lets the container go on.
fn containerd(located: &Located, wanted: Wanted<'_>) -> Result<CheckpointWay, NoWay> {
    let namespace = located.root.file_name().unwrap_or_default();
    let ctr = EngineCommand::of_client("ctr", &["--namespace"]).with(namespace);
    let id = located.container.id();
    if let Some(directory) = wanted.image.filter(|image| is_path(image)) {
        let directory = absolute(directory)?;
        let mut command = ctr.with_all(["tasks", "checkpoint", "--image-path"]);
        command = command.with(&directory);
        if wanted.after == AfterDump::Exit {
            command = command.with("--exit");
        }
        return Ok(CheckpointWay {
            command: command.with(id),
            image: Some(directory.display().to_string()),
            directory: Some(directory),
        });
    }
    if wanted.after == AfterDump::Exit {
        return Err(NoWay::Engine(format!(
            "ctr ends a container only with a checkpoint into a directory, which ctr cannot restore; \
             use --image=DIRECTORY, or keep {id} running with --leave-running: `stasis restore` takes \
             that image"
        )));
    }
    let image = wanted
        .image
        .map_or_else(|| format!("{}{}", image_prefix(id), stamp()), str::to_owned);
    let options = ["containers", "checkpoint", "--rw", "--image", "--task"];
    Ok(CheckpointWay {
        command: ctr.with_all(options).with(id).with(&image),
        image: Some(image),
        directory: None,
    })
}

/// Returns the default beginning of the names of containerd's images of a container.
pub(super) fn image_prefix(id: &str) -> String {
    format!("stasis.local/{id}:")
}

fn cri(located: &Located, wanted: Wanted<'_>) -> Result<CheckpointWay, NoWay> {
    if wanted.after == AfterDump::Exit {
        let text = "Kubernetes keeps a container running after a checkpoint; use --leave-running";
        return Err(NoWay::Engine(text.to_owned()));
    }
    let archive = wanted.image.ok_or_else(|| {
        let text = "name an archive with --image=FILE, which `crictl checkpoint` writes";
        NoWay::NoImage(text.to_owned())
    })?;
    let archive = absolute(archive)?;
    let mut export = std::ffi::OsString::from("--export=");
    export.push(&archive);
    Ok(CheckpointWay {
        command: EngineCommand::of_client("crictl", &[CRICTL_TIMEOUT, "checkpoint"])
            .with(export)
            .with(located.container.id()),
        image: Some(archive.display().to_string()),
        directory: None,
    })
}

pub(super) fn runtime(
    settings: &Settings,
    located: &Located,
    wanted: Wanted<'_>,
) -> Result<CheckpointWay, NoWay> {
    let directory = wanted.image.ok_or_else(|| {
        let text = "no engine keeps its images; name a directory with --image=DIRECTORY";
        NoWay::NoImage(text.to_owned())
    })?;
    let directory = absolute(directory)?;
    let mut command = stasis_runtime(settings, located.flavor, wanted.config)?
        .with("--root")
        .with(&located.root)
        .with_all(["checkpoint", "--image-path"])
        .with(&directory)
        .with_all(words(wanted.options));
    if wanted.after == AfterDump::LeaveRunning {
        command = command.with("--leave-running");
    }
    Ok(CheckpointWay {
        command: command.with(located.container.id()),
        image: Some(directory.display().to_string()),
        directory: Some(directory),
    })
}

/// Finds the runtime that was installed with this program, for containers of a low-level runtime of
/// this kind.
pub(super) fn stasis_runtime(
    settings: &Settings,
    flavor: Flavor,
    config: Option<&Path>,
) -> Result<EngineCommand, NoWay> {
    let own = env::current_exe().unwrap_or_default();
    let program = own.with_file_name("stasis-runtime");
    if !program.is_file() {
        return Err(NoWay::NoRuntime(program));
    }
    let mut command = EngineCommand::of_runtime(program);
    if let Some(config) = config {
        command = command.with("--stasis-config").with(config);
    }
    let of_settings = settings.runtime.resolve();
    if !of_settings.is_ok_and(|low_level| low_level.flavor == flavor) {
        command = command.with("--stasis-low-level").with(flavor.name());
    }
    Ok(command)
}

/// Returns whether it is a directory, and not the name of an image.
pub(super) fn is_path(image: &str) -> bool {
    image.starts_with(['/', '.'])
}

pub(super) fn absolute(path: &str) -> Result<PathBuf, NoWay> {
    std::path::absolute(path).map_err(|error| NoWay::NoImage(format!("{path:?}: {error}")))
}

/// Returns the time in characters that any engine takes in a name; later times sort behind.
fn stamp() -> String {
    rfc3339(SystemTime::now()).replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_may_be_in_a_name() {
        let stamp = stamp();
        assert_eq!(stamp.len(), "20261125T103000Z".len());
        assert!(stamp.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }

    #[test]
    fn a_path_is_told_from_a_name() {
        assert!(is_path("/images/job") && is_path("./job"));
        assert!(!is_path("example.com/job:1"));
    }
}
