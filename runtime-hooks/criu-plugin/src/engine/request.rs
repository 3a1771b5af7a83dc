//! The engine's request for a dump or restore. Without an engine (stock runc with our plugin
//! directory) there is none.

use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use stasis_memory_store::{DumpRequest, REQUEST_VARIABLE, RestoreRequest};

use crate::error::Error;

/// The request for this dump, if there is one.
pub(crate) fn for_dump() -> Result<Option<DumpRequest>, Error> {
    read()
}

/// The request for this restore, if there is one.
pub(crate) fn for_restore() -> Result<Option<RestoreRequest>, Error> {
    read()
}

/// How many threads work by default.
pub(crate) fn threads() -> usize {
    thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(16)
}

fn read<T: serde::de::DeserializeOwned>() -> Result<Option<T>, Error> {
    let Some(path) = std::env::var_os(REQUEST_VARIABLE).map(PathBuf::from) else {
        return Ok(None);
    };
    let read = || serde_json::from_slice(&fs::read(&path)?).map_err(io::Error::from);
    match read() {
        Ok(request) => Ok(Some(request)),
        Err(source) => Err(Error::Request { path, source }),
    }
}

/// Keeps the request file locked until we and all processes that we fork have closed it. After a
/// dump the engine waits for that lock.
pub(crate) fn hold() -> Option<File> {
    let file = File::open(std::env::var_os(REQUEST_VARIABLE)?).ok()?;
    file.lock().ok()?;
    Some(file)
}
