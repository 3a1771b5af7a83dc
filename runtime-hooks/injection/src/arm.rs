//! Leads the driver's calls to the code, and back.

use std::io;

use stasis_injected_copy::Reported;
use stasis_linux::ProcessRef;
use stasis_remote_call::memory::{word, write};

use crate::error::InjectionError;
use crate::prepare::Prepared;
use crate::put_back::{PutBack, put_back, put_slots_back};
use crate::record::Record;
use crate::workers::Workers;

/// A process whose driver copies by code of ours. After a drop of this, [`put_back`] is still to be
/// called.
#[derive(Debug)]
pub struct Armed {
    process: ProcessRef,
    record: Record,
    workers: Workers,
}

impl Prepared {
    /// Maps the file, starts the workers, and leads the driver's calls to the code. The record has
    /// to be durable before.
    ///
    /// # Errors
    /// [`InjectionError::Arm`]: the process is as it was. [`InjectionError::PutBack`]: it is not.
    pub fn arm(self) -> Result<Armed, InjectionError> {
        let (process, record) = (self.process.clone(), self.record.clone());
        let armed = Workers::start(self).and_then(|workers| {
            lead_to_code(process.pid(), &record)?;
            Ok(workers)
        });
        match armed {
            Ok(workers) => Ok(Armed {
                process,
                record,
                workers,
            }),
            Err(error) => {
                put_back(&process, &record)?;
                Err(InjectionError::Arm(error))
            }
        }
    }
}

impl Armed {
    /// Reads the code's report so far.
    ///
    /// # Errors
    /// An error of process_vm_readv(2).
    pub fn reported(&self) -> io::Result<Reported> {
        self.record.reported(self.process.pid())
    }

    /// Reports to the code that all contents but `missing` bytes at their end have been loaded
    /// ([`crate::Transfer::Arriving`]).
    ///
    /// # Errors
    /// An error of process_vm_writev(2).
    pub fn loaded(&self, missing: u64) -> io::Result<()> {
        self.record.set_missing(self.process.pid(), missing)
    }

    /// Puts everything back once the driver's call has returned.
    ///
    /// # Errors
    /// [`InjectionError::PutBack`]; [`put_back`] may be tried again.
    pub fn disarm(self) -> Result<PutBack, InjectionError> {
        let back = put_slots_back(self.process.pid(), &self.record);
        drop(self.workers);
        if self.process.is_gone() {
            return Ok(PutBack::Ended);
        }
        back.map_err(InjectionError::PutBack)?;
        put_back(&self.process, &self.record)
    }
}

/// Writes the code's addresses to the slots. Fails if a slot was changed: by the linker, at the
/// first call through it, or by another program.
fn lead_to_code(pid: i32, record: &Record) -> io::Result<()> {
    let slots = &record.slots;
    let both = [(slots.mmap, record.mmap), (slots.memcpy, record.memcpy)];
    for (slot, _) in both {
        if word(pid, slot.address)? != slot.before {
            return Err(io::Error::other("a slot was changed meanwhile"));
        }
    }
    for (slot, code) in both {
        write(pid, slot.address, &code.to_ne_bytes())?;
    }
    Ok(())
}
