//! A second process that has the files of contents that are detached: the image, which has them as
//! well, may be removed by then, and one process's end must not lose them. Both share the memory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_host::lent::Lent;
use stasis_host::respawn;
use stasis_injection::{ContentsFile, Sharing};
use stasis_memory_store::ImageId;

use super::held::{Held, keep};
use super::in_file::InFile;
use super::record::HeldRecord;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::steps::{next, report_done};

/// The first argument of such a process.
const VERB: &str = "stasis-gpu-stand-by";

/// The work of the second process, with all that the first one has.
#[derive(Debug, Serialize, Deserialize)]
pub struct StandBy {
    /// The operation's directory.
    directory: PathBuf,
    image_id: ImageId,
    /// Lock of the record, which both share.
    record: Lent,
    /// Lock of the image.
    lock: Lent,
    held: Vec<Own>,
}

/// Contents, and their file.
#[derive(Debug, Serialize, Deserialize)]
struct Own {
    in_file: InFile,
    file: Lent,
    offset: u64,
    sharing: Sharing,
}

impl StandBy {
    /// The process that this one was started as, if it was. Both have the same name.
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-gpu-hold")
    }

    /// Starts the process, with the lock of the image. It answers once it has all files.
    pub(super) fn start(held: &[Held], record: &HeldRecord, lock: &OwnedFd) -> io::Result<Copier> {
        let job = Self {
            directory: record.directory().to_owned(),
            image_id: record.image_id(),
            record: Lent::of(record.lock().as_fd())?,
            lock: Lent::of(lock.as_fd())?,
            held: held.iter().map(Own::of).collect::<io::Result<_>>()?,
        };
        Copier::start(VERB, &job)
    }

    /// Serves until the end of its input, which is the end of the process that has started it.
    ///
    /// # Errors
    /// The first process receives the error as well, or is gone.
    pub fn run(self) -> io::Result<()> {
        let (held, record, _lock) = report_done(self.take())?;
        while next::<()>()?.is_some() {}
        if record.is_there()? {
            keep(&held, &record);
        }
        Ok(())
    }

    fn take(&self) -> io::Result<(Vec<Held>, HeldRecord, OwnedFd)> {
        let mut held = Vec::new();
        for own in &self.held {
            held.extend(own.take()?);
        }
        let record = HeldRecord::of(&self.directory, self.image_id, self.record.take()?.into());
        Ok((held, record, self.lock.take()?))
    }
}

impl Own {
    fn of(held: &Held) -> io::Result<Self> {
        Ok(Self {
            in_file: held.in_file,
            file: Lent::of(held.from.file.as_fd())?,
            offset: held.from.offset,
            sharing: held.from.sharing,
        })
    }

    /// Takes the contents; none for a process that has ended.
    fn take(&self) -> io::Result<Option<Held>> {
        let Some(process) = self.in_file.process.open()? else {
            return Ok(None);
        };
        Ok(Some(Held {
            process,
            in_file: self.in_file,
            from: ContentsFile {
                file: self.file.take()?.into(),
                offset: self.offset,
                sharing: self.sharing,
            },
        }))
    }
}
