//! containerd: `ctr` makes a new container of an image of containerd's.

use stasis_locate::engine::Engine;

use super::{EngineCommand, Not, RestoreWay, Wanted};
use crate::through_engine::checkpoint_way::{image_prefix, is_path};
use crate::through_engine::command::NoAnswer;
use crate::through_engine::no_way::NoWay;

/// The namespaces that belong to other engines.
const OF_OTHERS: [&str; 2] = ["moby", "k8s.io"];

pub(super) fn way(wanted: Wanted<'_>) -> Result<RestoreWay, Not> {
    let namespaces = ctr(&["namespaces", "ls", "-q"])?;
    let own = namespaces.lines().filter(|name| !OF_OTHERS.contains(name));
    for namespace in own {
        if let Some(way) = in_namespace(namespace, wanted) {
            return way.map_err(Not::Way);
        }
    }
    let text = "no namespace has this container or an image of it".to_owned();
    Err(Not::Known(text))
}

/// Finds the way in a namespace; `None` if it has neither the container nor an image of it.
fn in_namespace(namespace: &str, wanted: Wanted<'_>) -> Option<Result<RestoreWay, NoWay>> {
    let list = |what| ctr(&["--namespace", namespace, what, "ls", "-q"]).unwrap_or_default();
    let (containers, images) = (list("containers"), list("images"));
    let name = wanted.name;
    let is_there = containers.lines().any(|id| id == name);
    let prefix = image_prefix(name);
    // Their names end with the time.
    let image = images
        .lines()
        .filter(|image| match wanted.image {
            Some(wanted) => *image == wanted,
            None => image.starts_with(&prefix),
        })
        .max();
    Some(match image {
        None if !is_there => return None,
        None => Err(no_image(wanted, &prefix)),
        Some(_) if is_there => Err(NoWay::Engine(format!(
            "containerd still has the container {name}, and ctr restores into a new one; once its task \
             has ended, remove it: ctr --namespace {namespace} containers rm {name}"
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

fn no_image(wanted: Wanted<'_>, prefix: &str) -> NoWay {
    let name = wanted.name;
    match wanted.image {
        Some(image) if is_path(image) => NoWay::Engine(format!(
            "ctr restores no container from a directory; clients of containerd's API do (CreateTask \
             with criu_image_path); `stasis checkpoint {name} --leave-running` without --image writes \
             an image that ctr restores"
        )),
        Some(image) => NoWay::NoImage(format!(
            "containerd has no image {image}; `ctr images ls` lists its images"
        )),
        None => NoWay::NoImage(format!(
            "containerd has no image {prefix}TIME, which `stasis checkpoint` makes; name another with \
             --image"
        )),
    }
}

fn ctr(arguments: &[&str]) -> Result<String, NoAnswer> {
    EngineCommand::of_client("ctr", arguments).answer()
}
