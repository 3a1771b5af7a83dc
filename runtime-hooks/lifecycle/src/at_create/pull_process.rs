//! The process that pulls an image for its starter, and their messages.
//!
//! It reads the image's description, and fetches nothing more before its starter, which knows the
//! settings and the new container, has found that the image would run here.

use std::io::{PipeWriter, Write};
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_host::cancel::Cancel;
use stasis_host::respawn::{self, NotBegun};

use stasis_engine::error::kind::Kind;
use stasis_engine::restore::admission::described::{Described, Unfit};

/// The first argument of the process.
const VERB: &str = "stasis-pull";
/// The starter's message that an image is worth fetching, a line of the process's input.
pub const GO_ON: &str = "go on\n";
/// How often signals are checked: one may have come to another thread than the waiting one.
const LOOK: Duration = Duration::from_millis(100);

/// The job of the process that pulls.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pull {
    /// The image.
    pub reference: String,
    /// A file with credentials.
    pub authfile: Option<PathBuf>,
    /// The place for the image.
    pub into: Into,
    /// The settings of the caller.
    pub settings: Settings,
}

/// Where the image goes.
#[derive(Debug, Serialize, Deserialize)]
pub enum Into {
    /// This directory.
    Directory(PathBuf),
    /// Below this directory, where new containers look for the image of its digest.
    KeptBelow(PathBuf),
}

/// A message of the process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The image's description. Nothing large is fetched before the starter has sent [`GO_ON`].
    Described(Box<Described>),
    /// This many bytes have been fetched, and more will come.
    Coming(u64),
    /// A restore from this image can begin, and it stays until the process's input ends.
    There(PathBuf),
    /// There is no image.
    Failed(NotPulled),
}

impl Pull {
    /// A pull with the machine's own credentials.
    pub fn new(settings: &Settings, reference: String, into: Into) -> Self {
        Self {
            reference,
            authfile: None,
            into,
            settings: settings.clone(),
        }
    }

    /// The job of this process, if it was started for one.
    #[must_use]
    pub fn of_this_process() -> Option<Result<Self, NotBegun>> {
        respawn::transfer_of(VERB, c"stasis-pull")
    }
}

/// Why there is no image.
#[derive(Debug, Serialize, Deserialize)]
pub struct NotPulled {
    /// The kind of the error.
    pub kind: Kind,
    /// The reason, for people.
    pub why: String,
}

impl From<Unfit> for NotPulled {
    fn from(Unfit { kind, why }: Unfit) -> Self {
        let why = format!("it would not run here, so its contents were not fetched: {why}");
        Self { kind, why }
    }
}

/// The process that pulls. It goes on when this is dropped.
#[derive(Debug)]
pub struct Process {
    lines: Receiver<String>,
    process: Child,
    /// The process holds the image until this is closed.
    input: PipeWriter,
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// No process can be started.
    pub fn start(pull: &Pull) -> std::io::Result<Self> {
        let (process, input, lines) = respawn::start_talking_transfer(VERB, pull)?;
        Ok(Self {
            lines,
            process,
            input,
        })
    }

    /// Waits until a restore can begin, as long as more data comes. `fits` decides whether an image
    /// may come; otherwise nothing large is fetched.
    pub fn image(
        &mut self,
        limit: Duration,
        cancel: &Cancel,
        fits: &dyn Fn(&Described) -> Result<(), Unfit>,
    ) -> Result<PathBuf, NotPulled> {
        let failed = |kind, why| NotPulled { kind, why };
        let mut last = Instant::now();
        let mut came = 0;
        loop {
            if cancel.requested() {
                return Err(failed(
                    Kind::Cancelled,
                    "a signal asked for the end".to_owned(),
                ));
            }
            match self
                .lines
                .recv_timeout(LOOK)
                .map(|line| serde_json::from_str(&line).ok())
            {
                Ok(Some(Answer::There(image))) => return Ok(image),
                Ok(Some(Answer::Failed(why))) => {
                    // The process ends now.
                    let _ = self.process.wait();
                    return Err(why);
                }
                Ok(Some(Answer::Described(image))) => {
                    fits(&image)?;
                    // If the process has ended, its output shows that.
                    let _ = self.input.write_all(GO_ON.as_bytes());
                    last = Instant::now();
                }
                Ok(Some(Answer::Coming(bytes))) if bytes > came => {
                    (came, last) = (bytes, Instant::now());
                }
                Ok(Some(Answer::Coming(_))) | Err(RecvTimeoutError::Timeout) => {}
                Ok(None) | Err(RecvTimeoutError::Disconnected) => {
                    let why = "the process that pulls it has ended, or was killed";
                    return Err(failed(Kind::Registry, why.to_owned()));
                }
            }
            if last.elapsed() > limit {
                let why = format!("nothing of it has come for {} s", limit.as_secs());
                return Err(failed(Kind::Hung, why));
            }
        }
    }
}
