//! Docker: lists checkpoints without their times, so they are looked up in Docker's own directory:
//! beside the files that it mounts into the container.

use std::fs;
use std::path::Path;

use stasis_locate::engine::Engine;

use super::{EngineCommand, Not, RestoreWay, Wanted, inspect, runs};
use crate::through_engine::no_way::NoWay;

const FACTS: &str = "--format={{.Id}}\n{{.State.Running}}\n{{.HostnamePath}}";

pub(super) fn way(wanted: Wanted<'_>) -> Result<RestoreWay, Not> {
    let [id, running, hostname] = inspect("docker", FACTS, wanted.name)?;
    if running == "true" {
        return Err(runs(wanted.name).into());
    }
    let all = Path::new(&hostname).with_file_name("checkpoints");
    let image = wanted.image.map(str::to_owned).or_else(|| newest_in(&all));
    let Some(image) = image else {
        let text = format!("Docker keeps no checkpoint of {}", wanted.name);
        return Err(NoWay::NoImage(text).into());
    };
    Ok(RestoreWay {
        engine: Some(Engine::Docker),
        command: EngineCommand::of_client("docker", &["start", "--checkpoint"])
            .with(&image)
            .with(&id),
        id: Some(id),
        directory: Some(all.join(&image)),
        image: Some(image),
    })
}

/// Returns the name of the directory that was made last.
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
