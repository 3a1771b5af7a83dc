//! Images of a registry, which a new container names: they are pulled by a process of its own, and
//! found here.
//!
//! That process looks up the digest of the tag, and puts the image where images of this digest are.
//! So many containers that name the same image at once fetch it once: the others wait until it is
//! there. It goes on if the one who asked has gone.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, pipe};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_memory_store::Tier;
use stasis_oci_image::Reference;

use crate::bulk_memory::request::threads;
use crate::container::pod::namespace_of;
use crate::container::spec::Spec;
use crate::error::first_image::NoFirstImage;
use crate::error::kind::Kind;
use crate::host::cancel::Cancel;
use crate::host::respawn;
use crate::image::directory::in_use::{self, InUse};

/// The first argument of the process.
const VERB: &str = "stasis-pull";
/// Below the directory of images for new containers. No container can name it: it begins with a
/// dot.
const DIRECTORY: &str = ".pulled";
/// A signal may have come to another thread than the one that waits.
const LOOK: Duration = Duration::from_millis(100);

/// What the process that pulls is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pull {
    /// The image.
    pub(crate) reference: String,
    /// A file with credentials.
    pub(crate) authfile: Option<PathBuf>,
    pub(crate) into: Into,
    pub(crate) threads: usize,
    /// How long nothing may come.
    pub(crate) stalled: Duration,
}

/// Where the image goes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Into {
    /// This directory.
    Directory(PathBuf),
    /// Where new containers look for the image of its digest.
    Kept {
        /// Where all of them are.
        below: PathBuf,
        /// How many are kept, beside those that are used.
        keep: usize,
        /// Where it is recorded who uses them.
        state_dir: PathBuf,
    },
}

/// What the process says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// So many bytes are there, and more will come.
    Coming(u64),
    /// A restore from this image can begin, and it stays until the process's input ends.
    There(PathBuf),
    /// It is not there.
    Failed {
        /// The name of the [`Kind`].
        kind: String,
        why: String,
    },
}

/// An image that is here.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) image: PathBuf,
    /// Nobody removes it meanwhile.
    pub(super) _in_use: InUse,
}

impl Pull {
    /// What this process is to do, if it was started for that.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-pull")
    }
}

/// Where the images of a registry are that new containers may begin with.
pub(super) fn directory(settings: &Settings) -> PathBuf {
    settings.restore.at_create.join(DIRECTORY)
}

/// Finds the image of a registry that the container of this specification names; pulls it, if it is
/// not here. Gives up if nothing of it comes for `deadlines.stalled_s`.
///
/// # Errors
/// [`NoFirstImage`].
pub(super) fn pulled(
    settings: &Settings,
    cancel: &Cancel,
    spec: &Spec,
    asked: &Reference,
) -> Result<Pulled, NoFirstImage> {
    let reference = allowed(&settings.restore.registry, spec, asked)?;
    let failed = |kind, why: String| NoFirstImage::Pull {
        reference: reference.clone(),
        kind,
        why,
    };
    let io_failed = |error: std::io::Error| failed(Kind::Io, error.to_string());
    let pull = Pull {
        reference: reference.clone(),
        authfile: None,
        into: Into::Kept {
            below: directory(settings),
            keep: settings.restore.keep_pulled,
            state_dir: settings.paths.state_dir.clone(),
        },
        threads: threads(settings, Tier::Disk),
        stalled: settings.deadlines.stalled(),
    };
    let mut process = Process::start(&pull).map_err(io_failed)?;
    let image = process.image(pull.stalled, cancel);
    let image = image.map_err(|NotPulled { kind, why }| failed(kind, why))?;
    let in_use = in_use::hold(&image);
    let in_use = in_use.map_err(|error| failed(error.kind(), error.to_string()))?;
    Ok(Pulled {
        image,
        _in_use: in_use,
    })
}

/// The whole name of the image, if this container may name it.
fn allowed(registry: &str, spec: &Spec, asked: &Reference) -> Result<String, NoFirstImage> {
    if registry.is_empty() {
        return Err(NoFirstImage::NoRegistry);
    }
    let (scheme, place) = split_scheme(registry);
    let mut allowed = format!("{place}/");
    if let Some(namespace) = namespace_of(spec)? {
        allowed.push_str(namespace);
        allowed.push('/');
    }
    let given = asked.to_string();
    let (_, name) = split_scheme(&given);
    match name.starts_with(&allowed) {
        // How it is reached is the settings' to say.
        true => Ok(format!("{scheme}{name}")),
        false => Err(NoFirstImage::OtherRegistry { given, allowed }),
    }
}

fn split_scheme(text: &str) -> (&str, &str) {
    let after = text.find("://").map_or(0, |at| at + "://".len());
    text.split_at(after)
}

/// Why there is no image.
#[derive(Debug)]
pub(crate) struct NotPulled {
    pub(crate) kind: Kind,
    pub(crate) why: String,
}

/// The process that pulls. It goes on when this is dropped.
pub(crate) struct Process {
    lines: Receiver<String>,
    process: Child,
    /// It holds the image for us until this is closed.
    _input: PipeWriter,
}

impl Process {
    pub(crate) fn start(pull: &Pull) -> std::io::Result<Self> {
        let (stdin, input) = pipe()?;
        let (output, stdout) = pipe()?;
        let process = respawn::start_with(VERB, pull, [stdin.into(), stdout.into()])?;
        Ok(Self {
            lines: lines_of(output),
            process,
            _input: input,
        })
    }

    /// Waits until a restore can begin, as long as more comes.
    pub(crate) fn image(&mut self, limit: Duration, cancel: &Cancel) -> Result<PathBuf, NotPulled> {
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
            match self.lines.recv_timeout(LOOK).map(|line| read(&line)) {
                Ok(Some(Answer::There(image))) => return Ok(image),
                Ok(Some(Answer::Failed { kind, why })) => {
                    // It ends now.
                    let _ = self.process.wait();
                    return Err(failed(kind_of(&kind), why));
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

/// A pipe cannot be read with a limit, but waited for in a thread.
fn lines_of(output: PipeReader) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn read(line: &str) -> Option<Answer> {
    serde_json::from_str(line).ok()
}

fn kind_of(name: &str) -> Kind {
    let mut all = Kind::ALL.iter().copied();
    all.find(|kind| kind.name() == name)
        .unwrap_or(Kind::Registry)
}

/// The directory of an image with this digest.
pub(crate) fn place_of(below: &Path, hex: &str) -> PathBuf {
    below.join(format!("sha256-{hex}"))
}

#[cfg(test)]
mod tests;
