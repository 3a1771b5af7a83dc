//! What the engine wants; without it (a plain runc that was told of our directory) what is always safe.

use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::rand::{GetRandomFlags, getrandom};
use stasis_memory_store::{After, DumpOrder, ImageId, ORDER_VARIABLE, Report, RestoreOrder, Tier};

use crate::criu;
use crate::error::Error;

const MINIMUM_MIB: u64 = 16;

/// The order for this dump.
pub(crate) fn dump_order() -> Result<DumpOrder, Error> {
    match read()? {
        Some(order) => Ok(order),
        None => Ok(DumpOrder {
            image_id: new_image_id()?,
            tier: Tier::Portable,
            directory: None,
            earlier: None,
            threads: threads(),
            compression: None,
            // Who ordered nothing cannot tell us that the tasks are to end.
            after: After::GoOn,
            minimum_mib: MINIMUM_MIB,
            progress: None,
            report: None,
        }),
    }
}

/// The order for this restore, if there is one.
pub(crate) fn restore_order() -> Result<Option<RestoreOrder>, Error> {
    read()
}

/// As many as may work at the same time here.
pub(crate) fn threads() -> usize {
    thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(16)
}

fn read<T: serde::de::DeserializeOwned>() -> Result<Option<T>, Error> {
    let Some(path) = std::env::var_os(ORDER_VARIABLE).map(PathBuf::from) else {
        return Ok(None);
    };
    let read = || serde_json::from_slice(&fs::read(&path)?).map_err(io::Error::from);
    match read() {
        Ok(order) => Ok(Some(order)),
        Err(source) => Err(Error::Order { path, source }),
    }
}

/// Keeps the order locked until it is closed by us and by all that we fork: the engine waits for that when a dump is over.
pub(crate) fn hold() -> Option<File> {
    let file = File::open(std::env::var_os(ORDER_VARIABLE)?).ok()?;
    file.lock().ok()?;
    Some(file)
}

fn new_image_id() -> Result<ImageId, Error> {
    let mut random = [0; 16];
    match getrandom(&mut random, GetRandomFlags::empty()) {
        Ok(16) => Ok(ImageId::new(u128::from_ne_bytes(random))),
        _ => Err(Error::Criu("have random numbers")),
    }
}

/// Tells CRIU's log how it went.
pub(crate) fn log(report: &Report) {
    criu::log_info(&format!(
        "{} areas of {} processes: {} bytes, {} of them zero, {} stored, {} reused; copied in {:.2} s",
        report.areas,
        report.processes,
        report.bytes,
        report.zero_bytes,
        report.stored_bytes,
        report.reused_bytes,
        report.copy_seconds
    ));
    for left in &report.left_to_criu {
        criu::log_info(&format!("left to CRIU: {left}"));
    }
}

/// Tells the engine what has become of it since.
pub(crate) fn tell_more(path: Option<&Path>, change: impl FnOnce(&mut Report)) {
    let Some(known) = path else { return };
    let told = fs::read(known).map(|text| serde_json::from_slice(&text).ok());
    let mut report = told.ok().flatten().unwrap_or_default();
    change(&mut report);
    tell(path, &report);
}

/// Tells the engine, in one go: it may read at any time.
pub(crate) fn tell(path: Option<&Path>, report: &Report) {
    let Some(path) = path else { return };
    let staged = path.with_extension("staged");
    let told = serde_json::to_vec(report).map_err(io::Error::from);
    let told = told.and_then(|text| fs::write(&staged, text));
    if let Err(error) = told.and_then(|()| fs::rename(&staged, path)) {
        criu::log_warning(&format!("cannot write {}: {error}", path.display()));
    }
}
