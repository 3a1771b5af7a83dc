//! The process that pushes what is still to be pushed (`cli/images/moved/at_stop`): those who began
//! it were killed, with the machine or without, or have not reached the registry for long.
//!
//! It is started by whoever may be the next to need it: `stasis recover`, which is run at boot, a
//! container that is stopped, and one that is to begin with the latest image of its key.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_config::{Deadlines, GpuContents, Paths, Settings};

use crate::host::respawn;
use crate::image::stopped::to_push::noted;

/// The first argument of such a process.
const VERB: &str = "stasis-push-again";

/// What of the settings says where images of stopped containers are pushed to, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PushAgain {
    /// All images are below it.
    pub(crate) at_create: PathBuf,
    /// Where their repositories are.
    pub(crate) registry: String,
    pub(crate) deadlines: Deadlines,
    pub(crate) paths: Paths,
    pub(crate) gpu_contents: GpuContents,
}

impl PushAgain {
    /// That of the settings; `None` if they have nothing pushed.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let restore = &settings.restore;
        if restore.registry.is_empty() || restore.at_create.as_os_str().is_empty() {
            return None;
        }
        Some(Self {
            at_create: restore.at_create.clone(),
            registry: restore.registry.clone(),
            deadlines: settings.deadlines.clone(),
            paths: settings.paths.clone(),
            gpu_contents: settings.gpu_contents.clone(),
        })
    }

    /// Starts it, if something is to be pushed. It leaves alone what somebody is at.
    ///
    /// # Errors
    /// The notes cannot be read, or it cannot be started.
    pub(crate) fn start(&self) -> io::Result<()> {
        match noted(&self.at_create)?.is_empty() {
            true => Ok(()),
            false => respawn::start(VERB, self).map(drop),
        }
    }

    /// What this process is to do, if it was started for that.
    #[must_use]
    pub(crate) fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-push")
    }

    /// As far as they matter.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            deadlines: self.deadlines.clone(),
            paths: self.paths.clone(),
            gpu_contents: self.gpu_contents.clone(),
            ..Settings::default()
        }
    }
}
