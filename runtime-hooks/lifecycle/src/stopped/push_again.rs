//! The process that pushes images again (`at_stop` of the crate `transfer`): earlier
//! pushes were killed, with the machine or without, or have not reached the registry for long.
//!
//! The next process that may need it starts it: `stasis recover`, which is run at boot, a container
//! that is stopped, and one that is to begin with the latest image of its key.

use std::io;

use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_host::respawn::{self, NotBegun};

use crate::stopped::to_push::noted;

/// The first argument of such a process.
const VERB: &str = "stasis-push-again";

/// Settings that have images of stopped containers pushed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PushAgain {
    /// They name the registry and the directory of images.
    pub settings: Settings,
}

impl PushAgain {
    /// `None` if nothing is pushed.
    pub fn of(settings: &Settings) -> Option<Self> {
        let restore = &settings.restore;
        let are_pushed = !restore.registry.is_empty() && !restore.at_create.as_os_str().is_empty();
        are_pushed.then(|| Self {
            settings: settings.clone(),
        })
    }

    /// Starts it, if an image is to be pushed. It leaves images alone that a process is pushing.
    pub fn start(&self) -> io::Result<()> {
        match noted(&self.settings.restore.at_create)?.is_empty() {
            true => Ok(()),
            false => respawn::start_transfer(VERB, self).map(drop),
        }
    }

    /// Returns the job of this process, if it was started for that.
    #[must_use]
    pub fn of_this_process() -> Option<Result<Self, NotBegun>> {
        respawn::transfer_of(VERB, c"stasis-push")
    }
}
