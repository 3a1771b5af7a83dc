//! Checks whether the registry has a newer image of a key than this machine: if jobs move between
//! hosts, the previous container may have ended elsewhere.
//!
//! A stop of a container first announces its image in the registry (`at_stop/push.rs`).
//! As long as that is valid, no earlier image is taken: the job would go back in time. A process of
//! the operator's program asks the registry; this one has no client for it.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_host::cancel::Cancel;
use stasis_host::respawn::{self, NotBegun};
use stasis_oci_image::document::annotations::{CREATED, IMAGE};
use stasis_oci_image::{Manifest, Reference, RepositoryName};

use crate::at_create::no_first_image::NoFirstImage;
use crate::at_create::pull_process::NotPulled;
use crate::stopped::repository::repository_of;
use crate::stopped::{ENDING, LATEST};
use stasis_engine::container::spec::Spec;
use stasis_engine::error::kind::Kind;

/// The first argument of the process that asks.
const VERB: &str = "stasis-newest";
/// The time limit for a registry's answers.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// The process limits itself; it may have been killed.
const ENDED_WITHIN: Duration = Duration::from_secs(25);
const POLL: Duration = Duration::from_millis(200);

/// The newest image on this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LocalImage {
    /// The image's name, which has the time when a container was stopped.
    pub name: String,
    /// The creation time, RFC 3339.
    pub created: String,
}

impl LocalImage {
    /// Images of stopped containers are named by the time to the millisecond; other images have a
    /// creation time in seconds.
    pub fn is_before(&self, there: &Manifest) -> bool {
        match there.annotation(IMAGE) {
            Some(name) if [name, &self.name].iter().all(|name| name.ends_with(ENDING)) => {
                name > self.name.as_str()
            }
            _ => there.annotation(CREATED) > Some(self.created.as_str()),
        }
    }
}

/// An image of the registry.
#[derive(Debug, Serialize, Deserialize)]
pub struct RemoteImage {
    /// The repository and the image's digest.
    pub reference: String,
    /// Its name on the host where it was made.
    pub name: String,
}

/// The question to a registry.
#[derive(Debug, Serialize, Deserialize)]
pub struct Query {
    /// The repository of the key.
    pub repository: String,
    /// The newest image on this machine, if there is one.
    pub here: Option<LocalImage>,
}

/// The registry's answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Newest {
    /// The newest image, if it is newer than the one on this machine.
    Image(Option<RemoteImage>),
    /// A newer image is being made.
    Awaited {
        /// Its name.
        image: String,
        /// The host that makes it.
        host: String,
        /// The time of the stop, RFC 3339.
        since: String,
    },
}

impl Query {
    /// The question, if this process was started to ask it.
    #[must_use]
    pub fn of_this_process() -> Option<Result<Self, NotBegun>> {
        respawn::transfer_of(VERB, c"stasis-newest")
    }

    fn ask(&self) -> Result<Newest, NotPulled> {
        let failed = |kind, why| NotPulled { kind, why };
        let started = respawn::start_talking_transfer(VERB, self);
        let started = started.map_err(|error| failed(Kind::Io, error.to_string()));
        let (mut process, input, lines) = started?;
        let line = lines.recv_timeout(ENDED_WITHIN).unwrap_or_default();
        drop(input);
        // It has ended, or does not answer any more.
        let _ = process.kill();
        let _ = process.wait();
        let answer: Option<Result<_, _>> = serde_json::from_str(&line).ok();
        let no_answer = || {
            failed(
                Kind::Io,
                "the process that asks it does not answer".to_owned(),
            )
        };
        let answer = answer.ok_or_else(no_answer)?;
        answer.map_err(|why| failed(Kind::Registry, why))
    }
}

/// Returns the registry's image, if it is newer than the local one. Waits up to
/// `deadlines.stalled_s` for an image that is being made.
pub(super) fn newer(
    settings: &Settings,
    cancel: &Cancel,
    spec: &Spec,
    key: &Path,
    here: Option<LocalImage>,
) -> Result<Option<(Reference, String)>, NoFirstImage> {
    let all = &settings.restore.registry;
    if all.is_empty() {
        return Ok(None);
    }
    let repository = repository_of(all, spec, key)?;
    let query = Query {
        repository: repository.to_string(),
        here,
    };
    let deadline = Instant::now() + settings.deadlines.stalled();
    loop {
        let unknown = |not_pulled| unknown(&repository, not_pulled);
        let (image, host, since) = match query.ask().map_err(unknown)? {
            Newest::Image(None) => return Ok(None),
            Newest::Image(Some(RemoteImage { reference, name })) => {
                let reference = reference.parse();
                let reference = reference.map_err(|_| {
                    let why = "its answer names no image".to_owned();
                    unknown(NotPulled {
                        kind: Kind::Registry,
                        why,
                    })
                });
                return Ok(Some((reference?, name)));
            }
            Newest::Awaited { image, host, since } => (image, host, since),
        };
        if Instant::now() > deadline || cancel.requested() {
            return Err(NoFirstImage::Awaited { image, host, since });
        }
        sleep(POLL);
    }
}

fn unknown(repository: &RepositoryName, NotPulled { kind, why }: NotPulled) -> NoFirstImage {
    NoFirstImage::Pull {
        reference: format!("{repository}:{LATEST}"),
        kind,
        why,
    }
}
