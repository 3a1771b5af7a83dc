//! The ledger of the node: GPU memory, host memory and memory for GPU contents that running
//! operations will still take.
//!
//! Finding room and taking it are two steps, with minutes between them. So an operation reserves
//! room as it finds it, behind a lock of the whole ledger, and no other counts it as free until it
//! is released: when it has been taken, or is not needed any more. An entry is a file that its
//! operation holds locked (flock(2)), so it ends with the operation, however that ends; but if the
//! operation is to be undone, once that is over. The lock of the ledger is its directory's: an
//! operation that goes back to its GPU, and can write no entry, keeps it.

pub mod amounts;
mod entries;
pub mod gpu_memory;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_host::cancel::Cancel;
use stasis_host::file_lock::{Sharing, lock_soon, lock_within};
use stasis_linux::directory::Directory;

use crate::ledger::amounts::{Amounts, Entry, Resource, Short, short};

/// The ledger's directory, below the state directory.
const DIRECTORY: &str = "ledger";
/// The most time for others to hold the lock of the ledger: each queries the GPUs meanwhile, with a
/// deadline (`deadlines.nvml_s`).
const GATE: Duration = Duration::from_secs(60);
/// Time between two looks for room.
const POLL: Duration = Duration::from_millis(200);

/// The reservation of one operation, until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    directory: PathBuf,
    /// Name of the container that the operation works on, or of other work.
    container: String,
    purpose: Purpose,
    /// A file that exists as long as the operation is to be undone.
    record: Option<PathBuf>,
    own: Mutex<Own>,
}

/// The purpose of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// An operation.
    Operation,
    /// A caller that asks whether there is room, and takes none.
    Look,
}

#[derive(Debug, Default)]
struct Own {
    /// The entry, once something is reserved.
    file: Option<(PathBuf, File)>,
    /// The lock of the ledger, in place of an entry that could not be written.
    gate: Option<File>,
    amounts: Amounts,
    /// How long the operation has waited for room so far.
    waited: Duration,
}

/// How long an operation waits for room, in all.
#[derive(Debug, Clone)]
pub struct WaitLimit {
    limit: Duration,
    cancel: Cancel,
}

/// The event that an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// The end of other operations, if there is room then: otherwise it is refused at once.
    Reservations,
    /// Room, whatever uses it. A full disk may be why the operation has failed, and a container
    /// that is alone must not wait for that: so if no entry can be written, no other operation
    /// reserves anything until this is released.
    Room,
}

/// Why nothing is reserved.
#[derive(Debug)]
pub enum NotReserved<E> {
    /// The room is short.
    Short(Box<Short>),
    /// The free bytes could not be read.
    Unknown(E),
    /// The ledger cannot be used.
    Ledger(io::Error),
}

impl WaitLimit {
    /// Waits at most `limit`, and not beyond a signal.
    #[must_use]
    pub fn new(limit: Duration, cancel: Cancel) -> Self {
        Self { limit, cancel }
    }

    /// For a caller that must not wait.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Duration::ZERO, Cancel::not_needed())
    }

    fn is_over(&self, waited: Duration) -> bool {
        waited >= self.limit || self.cancel.requested()
    }
}

impl Reservation {
    /// Makes one for an operation on a container. Nothing is reserved, and nothing written, yet.
    #[must_use]
    pub fn new(state_dir: &Path, container: &str) -> Self {
        Self::of(state_dir, container, Purpose::Operation)
    }

    /// Makes one for a caller that asks whether there is room: it is refused as an operation would
    /// be, and reserves nothing.
    #[must_use]
    pub fn only_asking(state_dir: &Path) -> Self {
        Self::of(state_dir, "", Purpose::Look)
    }

    fn of(state_dir: &Path, container: &str, purpose: Purpose) -> Self {
        Self {
            directory: state_dir.join(DIRECTORY),
            container: container.to_owned(),
            purpose,
            record: None,
            own: Mutex::default(),
        }
    }

    /// Keeps amounts reserved if the operation is killed, as long as this record of how to undo it
    /// exists, until another reservation with the same record is requested.
    #[must_use]
    pub fn recorded(mut self, record: PathBuf) -> Self {
        self.record = Some(record);
        self
    }

    /// Reserves these amounts, in place of this operation's reservation of the same resources, if
    /// `look` finds them free beside the reservations of others.
    ///
    /// # Errors
    /// [`NotReserved`]; an earlier reservation stays.
    pub fn reserve<E>(
        &self,
        wanted: &Amounts,
        wait_for: WaitFor,
        wait_limit: &WaitLimit,
        look: impl Fn() -> Result<Amounts, E>,
    ) -> Result<(), NotReserved<E>> {
        let mut own = self.own();
        loop {
            let short = match self.attempt(&mut own, wanted, wait_for, &look)? {
                None => return Ok(()),
                Some(short) => short,
            };
            let helps = wait_for == WaitFor::Room || short.is_for_reservations_only();
            if !helps || wait_limit.is_over(own.waited) {
                return Err(NotReserved::Short(Box::new(short)));
            }
            let began = Instant::now();
            sleep(POLL);
            own.waited += began.elapsed();
        }
    }

    fn attempt<E>(
        &self,
        own: &mut Own,
        wanted: &Amounts,
        wait_for: WaitFor,
        look: impl Fn() -> Result<Amounts, E>,
    ) -> Result<Option<Short>, NotReserved<E>> {
        let lock = self.lock(own).map_err(NotReserved::Ledger)?;
        let path = own.file.as_ref().map(|(path, _)| path.as_path());
        let others = entries::of_others(&self.directory, path, self.record.as_deref());
        let others = others.map_err(NotReserved::Ledger)?;
        let free = look().map_err(NotReserved::Unknown)?;
        if let Some(short) = short(wanted, &free, &own.amounts, &others) {
            return Ok(Some(short));
        }
        if self.purpose == Purpose::Look {
            return Ok(None);
        }
        own.amounts.replace(wanted);
        match self.write(own) {
            Ok(()) => own.gate = None,
            Err(_) if wait_for == WaitFor::Room => own.gate = own.gate.take().or(lock),
            Err(error) => return Err(NotReserved::Ledger(error)),
        }
        Ok(None)
    }

    /// Reserves amounts that the operation has already, and is about to free for a time.
    ///
    /// # Errors
    /// The ledger cannot be used.
    pub fn hold(&self, amounts: &Amounts) -> io::Result<()> {
        let mut own = self.own();
        let _lock = self.lock(&own)?;
        own.amounts.replace(amounts);
        self.write(&mut own)
    }

    /// Releases all but the kept amounts: they have been taken, or are not needed any more. If that
    /// cannot be written, they stay reserved until the end of the operation.
    pub fn retain(&self, is_kept: impl Fn(Resource) -> bool) {
        let mut own = self.own();
        own.amounts.retain(is_kept);
        if own.amounts.is_empty() {
            remove(&mut own);
        } else if let Ok(_lock) = self.lock(&own) {
            let _ = self.write(&mut own);
        }
    }

    /// Releases everything.
    pub fn release(&self) {
        self.retain(|_| false);
    }

    /// Takes the lock of the ledger, which needs no disk; `None` if this operation has it already.
    fn lock(&self, own: &Own) -> io::Result<Option<File>> {
        if own.gate.is_some() {
            return Ok(None);
        }
        let lock = Directory::make(&self.directory, 0o700)?.into_file();
        lock_within(GATE, &lock, Sharing::Exclusive)?;
        Ok(Some(lock))
    }

    /// Writes the entry. Runs under the ledger's lock, so no other operation reads half of it.
    fn write(&self, own: &mut Own) -> io::Result<()> {
        if own.file.is_none() {
            own.file = Some(self.make()?);
        }
        let entry = Entry {
            container: self.container.clone(),
            pid: std::process::id(),
            record: self.record.clone(),
            amounts: own.amounts.clone(),
        };
        let text = serde_json::to_vec(&entry)?;
        if let Some((_, file)) = &mut own.file {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&text)?;
        }
        Ok(())
    }

    /// Makes the entry, under a name that no other has.
    fn make(&self) -> io::Result<(PathBuf, File)> {
        let name = format!("{}.{:016x}", std::process::id(), fastrand::u64(..));
        let path = self.directory.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        lock_soon(&file)?;
        Ok((path, file))
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(own: &mut Own) {
    own.gate = None;
    if let Some((path, _)) = own.file.take() {
        // An entry without its lock counts as nothing.
        let _ = fs::remove_file(path);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        remove(&mut self.own());
    }
}

#[cfg(test)]
mod tests;
