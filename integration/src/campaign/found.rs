//! How a container is: asked of its processes, its driver, its status and its records.

use std::fs;

use anyhow::{Result, bail, ensure};

use crate::campaign::subject::Subject;
use crate::campaign::verb::Place;
use crate::check::wait::wait_until_clear;
use crate::container::bundle::ROOT;
use crate::host::installed::{CUDA_CHECKPOINT, StasisHost};

/// Programs that have to end after an operation.
const PROGRAMS: [&str; 8] = [
    "stasis-runtime",
    "cuda-checkpoint",
    "stasis",
    "stasis-keeper",
    "stasis-uffd",
    "runc",
    "criu",
    "gated-runc",
];

/// How a container is found after an operation.
#[derive(Debug)]
pub(super) enum Found {
    At(Place),
    /// Nobody can use it any more.
    Lost(String),
}

impl Subject<'_> {
    /// Where it is; an image that it may have ended in is this one.
    pub(super) fn place_now(&self, image: &str) -> Result<Found> {
        let status = self.bundle.status()?;
        Ok(match status.as_str() {
            "" | "stopped" => {
                let is_whole = self.bundle.image_path(image).join("stasis.json").exists();
                if is_whole {
                    Found::At(Place::Ended(image.to_owned()))
                } else {
                    Found::Lost("it has ended without an image".to_owned())
                }
            }
            "paused" => Found::At(Place::Paused),
            "running" => self.state_on_gpu()?,
            other => bail!("it is {other}"),
        })
    }

    fn state_on_gpu(&self) -> Result<Found> {
        let ask = [
            CUDA_CHECKPOINT,
            "--get-state",
            "--container",
            self.id(),
            "--root",
            ROOT,
        ];
        let states = self.stasis.host.run_for_text(&ask)?;
        let words: Vec<_> = states.split_whitespace().skip(1).step_by(2).collect();
        let all_are = |state| words == vec![state; self.tags().len()];
        Ok(if all_are("running") {
            Found::At(Place::Runs)
        } else if all_are("checkpointed") {
            Found::At(Place::Suspended)
        } else {
            Found::Lost(format!("its processes are {states}"))
        })
    }

    /// Nothing of it is left to be put right.
    pub(super) fn nothing_is_recorded(&self) -> Result<()> {
        let files = fs::read_dir(self.bundle.record());
        let files = files.into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        let left: Vec<_> = names.filter(|name| name != "lock").collect();
        ensure!(left.is_empty(), "still recorded: {left:?}");
        Ok(())
    }
}

impl StasisHost {
    /// Waits until no program of an operation is at work in the host.
    pub(super) fn nobody_works(&self) -> Result<()> {
        wait_until_clear(|| {
            let mut found = Vec::new();
            for entry in fs::read_dir(self.host.path("/proc"))? {
                let path = entry?.path();
                let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
                if PROGRAMS.contains(&name.trim()) {
                    found.push(format!("{} {}", path.display(), name.trim()));
                }
            }
            Ok((!found.is_empty()).then(|| found.join(", ")))
        })
    }
}
