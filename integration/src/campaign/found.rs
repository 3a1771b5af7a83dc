//! The state of a container, from its processes, its driver, its status and its records.

use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::campaign::end::End;
use crate::campaign::operation::Over;
use crate::campaign::subject::Subject;
use crate::campaign::verb::Place;
use crate::check::wait::wait_until_clear;
use crate::container::bundle::ROOT;
use crate::host::Host;
use crate::host::end::orphans;
use crate::host::installed::{CUDA_CHECKPOINT, StasisHost};

/// Programs that have to end after an operation.
const PROGRAMS: [&str; 8] = [
    "stasis-runtime",
    "cuda-checkpoint",
    "stasis",
    "stasis-keeper",
    "stasis-replace",
    "runc",
    "criu",
    "gated-runc",
];
/// How a keeper's arguments begin; it takes its name some time after it was started.
const KEEPER: &str = "stasis-keeper";

/// How a container is found after an operation.
#[derive(Debug)]
pub(super) enum Found {
    At(Place),
    /// Some of its processes are on the GPU, and some in host memory.
    Partly(String),
    /// It cannot be used any more.
    Lost(String),
}

impl Subject<'_> {
    /// Returns where it is; `image` is the image that it may have ended in.
    pub(super) fn place_now(&self, image: &str) -> Result<Found> {
        let status = self.bundle.status()?;
        Ok(match status.as_str() {
            "" | "stopped" => {
                // The next process that opens the image moves it up.
                let places = ["", ".stasis-new", ".stasis-complete", ".stasis-moving"];
                let image_path = self.bundle.image_path(image);
                let manifest = |place: &&str| image_path.join(place).join("stasis.json").exists();
                if places.iter().any(manifest) {
                    Found::At(Place::Ended(image.to_owned()))
                } else {
                    Found::Lost("it has ended without an image".to_owned())
                }
            }
            "paused" => Found::At(Place::Paused),
            "created" => Found::At(Place::Created),
            "running" => self.state_on_gpu()?,
            other => bail!("it is {other}"),
        })
    }

    /// Returns where it is, once a keeper that waits for room is not about to bring it back.
    pub(super) fn place_when_settled(&self, image: &str) -> Result<Found> {
        let mut found = None;
        wait_until_clear(|| {
            // In this order: a keeper that is done changes nothing any more.
            let waits = waits_for_room(&self.bundle.record());
            let now = match self.place_now(image) {
                // The keeper may be about to bring it back, and hold a thread.
                Err(busy) if waits => return Ok(Some(format!("{busy:#}"))),
                now => now?,
            };
            let now = match now {
                // Processes whose GPU checkpoint failed have kept their room.
                Found::At(Place::Suspended) | Found::Partly(_) if waits => Found::At(Place::Waits),
                Found::Partly(states) => Found::Lost(states),
                now => now,
            };
            let stays = [Place::Waits, Place::Paused];
            let is_settled = !waits || matches!(&now, Found::At(now) if stays.contains(now));
            let missing = (!is_settled).then(|| format!("its keeper waits, and it is {now:?}"));
            found = Some(now);
            Ok(missing)
        })?;
        found.context("not looked at")
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
        let states = self.stasis.run_for_text(&ask)?;
        let words: Vec<_> = states.split_whitespace().skip(1).step_by(2).collect();
        let all_are = |state| words == vec![state; self.tags().len()];
        let is_safe = |state: &&str| ["running", "checkpointed"].contains(state);
        Ok(if all_are("running") {
            Found::At(Place::Runs)
        } else if all_are("checkpointed") {
            Found::At(Place::Suspended)
        } else if words.len() == self.tags().len() && words.iter().all(is_safe) {
            Found::Partly(format!("its processes are {states}"))
        } else {
            Found::Lost(format!("its processes are {states}"))
        })
    }

    /// Accepts a loss if CRIU was killed inside of its tasks; another container takes its place,
    /// and nothing is left of it.
    pub(super) fn is_lost_with_criu(&mut self, over: &Over, why: Error) -> Result<End> {
        if !over.tasks_were_held {
            return Err(why);
        }
        self.start_again()?;
        self.nothing_is_recorded()?;
        Ok(End::LostByCriu)
    }

    /// Checks that no record of it is left to be put right.
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
    /// Whether the GPU was made so small that containers may have to wait for it.
    pub(super) fn is_short_of_room(&self) -> Result<bool> {
        Ok(self.gpu_memory()?.is_some())
    }

    /// Whether a process makes the checkpoint of a stop.
    pub(super) fn stops_somebody(&self) -> bool {
        let processes = fs::read_dir(self.path("/proc"));
        let mut paths = processes
            .into_iter()
            .flatten()
            .flatten()
            .map(|process| process.path());
        paths.any(|process| is_of_stop(&command_line(&process)))
    }

    /// Waits until no program of an operation is at work in the host. A keeper that waits for room
    /// on a GPU which is short of it does not count.
    pub(super) fn nobody_works(&self) -> Result<()> {
        let is_short = self.is_short_of_room()?;
        let all_have_ended = wait_until_clear(|| {
            orphans::reap();
            let mut found = Vec::new();
            for entry in fs::read_dir(self.path("/proc"))? {
                let path = entry?.path();
                let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
                let line = command_line(&path);
                let works = PROGRAMS.contains(&name.trim())
                    || line.starts_with(KEEPER)
                    || is_of_stop(&line);
                let is_idle = || is_short && is_keeper_that_waits(&self.host, &path);
                if works && !is_idle() {
                    found.push(format!("{} {}", path.display(), name.trim()));
                }
            }
            Ok((!found.is_empty()).then(|| found.join(", ")))
        });
        all_have_ended.map_err(|error| anyhow!("{error}\n{}", self.why_no_answer()))
    }
}

fn command_line(process: &Path) -> String {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// Whether a process makes the checkpoint of a stop, or has it made.
fn is_of_stop(line: &str) -> bool {
    let is_checkpoint = line.starts_with("/proc/self/exe\0") && line.contains("\0checkpoint\0");
    is_checkpoint || line.starts_with("stasis-stop\0")
}

/// Whether a process is a keeper that waits: while it tries, it has a file of its record open.
fn is_keeper_that_waits(host: &Host, process: &Path) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten();
    let open = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let mut records = open.filter_map(|file| Some(host.path(file.parent()?)));
    command_line(process).starts_with(KEEPER) && records.any(|record| waits_for_room(&record))
}

/// Whether all that is left to be undone is to give processes their GPU contents back.
fn waits_for_room(record: &Path) -> bool {
    let undo = fs::read(record.join("undo.json")).unwrap_or_default();
    let undo: Option<Value> = serde_json::from_slice(&undo).ok();
    undo.is_some_and(|undo| undo["begun"] == "waiting")
}
