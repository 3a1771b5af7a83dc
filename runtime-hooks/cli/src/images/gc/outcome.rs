//! The outcome for an image, a rest or contents that are not to be kept.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::Serialize;
use stasis_engine::bulk_memory::apart::Apart;
use stasis_engine::error::chain;
use stasis_engine::error::kind::Kind;
use stasis_engine::image::retention::Why;
use stasis_locate::whose::called;
use stasis_memory_store::ImageId;

use super::found::{Image, NotRemoved};
use crate::answer::amount::{age, since, size};
use crate::answer::name;

/// A subject that is not to be kept, and its outcome.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    what: Subject,
    /// The container's name, or its id if no engine knows one.
    #[serde(skip)]
    called: Option<String>,
    /// The image's directory; of contents, where their image was written.
    image: Option<PathBuf>,
    image_id: Option<ImageId>,
    container: Option<String>,
    created: Option<String>,
    /// Bytes that only this subject uses; `None` where that is not known.
    bytes: Option<u64>,
    why: &'static str,
    result: Done,
    error: Option<String>,
    kind: Option<Kind>,
}

/// The kind of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Subject {
    /// An image, with what is stored for it.
    Image,
    /// The rest of a checkpoint, beside an image that stays.
    Rest,
    /// GPU contents apart from an image that cannot be found.
    Contents,
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Done {
    /// It would be removed.
    WouldRemove,
    /// Only listed: `--contents` was not given.
    Listed,
    Removed,
    /// In use, and so kept.
    InUse,
    /// It could not be removed.
    Failed,
}

impl Outcome {
    /// Makes the outcome of an image.
    pub(super) fn of_image(image: &Image, why: Why) -> Self {
        Self {
            image_id: image.image_id,
            created: Some(image.created.clone()),
            bytes: Some(image.bytes),
            why: why.text(),
            what: Subject::Image,
            ..Self::of_rest(image)
        }
    }

    /// Makes the outcome of a later checkpoint's rest beside it.
    pub(super) fn of_rest(image: &Image) -> Self {
        Self {
            called: Some(called(&image.directory, &image.container)),
            image: Some(image.directory.clone()),
            container: Some(image.container.clone()),
            ..Self::new(Subject::Rest, Why::CutOff.text())
        }
    }

    /// Makes the outcome of GPU contents whose image cannot be found, for this reason.
    pub(super) fn of_contents(apart: &Apart, why: &'static str) -> Self {
        Self {
            called: apart.container.clone(),
            image: apart.image_path.clone(),
            image_id: Some(apart.image_id),
            container: apart.container.clone(),
            created: apart.created.clone(),
            bytes: Some(apart.bytes),
            ..Self::new(Subject::Contents, why)
        }
    }

    fn new(what: Subject, why: &'static str) -> Self {
        Self {
            what,
            called: None,
            image: None,
            image_id: None,
            container: None,
            created: None,
            bytes: None,
            why,
            result: Done::WouldRemove,
            error: None,
            kind: None,
        }
    }

    /// Keeps the contents: `--contents` was not given.
    pub(super) fn only_listed(self) -> Self {
        Self {
            result: Done::Listed,
            ..self
        }
    }

    /// Keeps it for its user.
    pub(super) fn in_use(self, by: &str) -> Self {
        Self {
            result: Done::InUse,
            error: Some(by.to_owned()),
            kind: Some(Kind::Busy),
            ..self
        }
    }

    /// Records whether it was removed.
    pub(super) fn removed(self, removed: Result<(), NotRemoved>) -> Self {
        match removed {
            Ok(()) => Self {
                result: Done::Removed,
                ..self
            },
            Err(error) if error.kind() == Kind::Busy => self.in_use(&chain(&error)),
            Err(error) => Self {
                result: Done::Failed,
                kind: Some(error.kind()),
                error: Some(chain(&error)),
                ..self
            },
        }
    }

    /// Returns whether it should have been removed, and still exists.
    pub(super) fn stays(&self) -> bool {
        matches!(self.result, Done::InUse | Done::Failed)
    }

    /// Returns the bytes that removing it would free.
    pub(super) fn would_free(&self) -> Option<u64> {
        let bytes = self.bytes.unwrap_or_default();
        (self.result == Done::WouldRemove).then_some(bytes)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.result {
            Done::WouldRemove => "would remove ",
            Done::Listed => "stays without --contents: ",
            Done::Removed => "removed ",
            Done::InUse | Done::Failed => "kept ",
        })?;
        f.write_str(match self.what {
            Subject::Image => "image",
            Subject::Rest => "the rest of a checkpoint in",
            Subject::Contents => "GPU contents of the image",
        })?;
        match (&self.image, &self.image_id) {
            (Some(image), _) => write!(f, " {}", name(&image.display()))?,
            (None, Some(id)) => write!(f, " {id}")?,
            (None, None) => {}
        }
        if let Some(container) = &self.called {
            write!(f, " of container {}", name(container))?;
        }
        if let Some(bytes) = self.bytes {
            write!(f, ", {}", size(bytes))?;
        }
        let created = self
            .created
            .as_deref()
            .filter(|_| self.what == Subject::Contents);
        if let Some(ago) = created.and_then(|time| since(time, SystemTime::now())) {
            write!(f, ", {} old", age(ago))?;
        }
        write!(f, ": {}", self.why)?;
        match &self.error {
            Some(error) => write!(f, "; {}", name(error)),
            None => Ok(()),
        }
    }
}
