//! Code of ours in a process for one call of the driver, and the record of it.

use std::io;
use std::path::Path;

use stasis_injection::{Armed, InjectionError, PutBack, Returned, Transfer, prepare, slots};
use stasis_linux::ProcessRef;
use stasis_memory_store::EarlyChecksums;

use super::new_file::Made;
use super::records::{HeldRecord, Injected};

/// Arms the process. From the record on, any later process of ours puts it back.
pub(super) fn arm(
    process: &ProcessRef,
    transfer: Transfer,
    workers: u64,
    records: &Path,
) -> io::Result<(Armed, HeldRecord)> {
    let slots = slots::inspect(process).map_err(io::Error::other)?;
    let prepared = prepare(process, slots, transfer, workers).map_err(io::Error::other)?;
    let record = Injected::Copy(prepared.record().clone());
    let record = HeldRecord::write(records, process, &record);
    // Without a record no process would know of our code in it.
    let record =
        record.inspect_err(|_| drop(stasis_injection::put_back(process, prepared.record())))?;
    match prepared.arm() {
        Ok(armed) => Ok((armed, record)),
        Err(error @ InjectionError::PutBack(_)) => Err(io::Error::other(error)),
        Err(error) => {
            record.remove();
            Err(io::Error::other(error))
        }
    }
}

/// Returns how much the code has copied.
pub(super) fn disarm(
    armed: Armed,
    record: &HeldRecord,
    made: Option<Made>,
    checksums: &EarlyChecksums,
) -> Result<u64, InjectionError> {
    let back = armed.disarm()?;
    let PutBack::Returned(Returned { contents, reported }) = back else {
        if !matches!(back, PutBack::CodeLeft(_)) {
            record.remove();
        }
        if let (PutBack::Ended, Some(made)) = (back, made) {
            made.unused();
        }
        return Ok(0);
    };
    record.remove();
    match (made, contents) {
        (Some(made), Some(contents)) => {
            made.leave_checksums(checksums, reported.filled);
            made.done(contents.length);
        }
        (Some(made), None) => made.unused(),
        (None, _) => {}
    }
    Ok(reported.copied)
}
