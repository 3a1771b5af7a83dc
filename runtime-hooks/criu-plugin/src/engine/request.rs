//! The engine's request for a dump or restore. Without an engine (stock runc with our plugin
//! directory) there is none, and the defaults are what is always safe.

use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use stasis_memory_store::{
    After, CudaPids, DumpRequest, ImageId, REQUEST_VARIABLE, RestoreRequest, Tier,
};

use crate::error::Error;

const MINIMUM_MIB: u64 = 16;

/// The request for this dump.
pub(crate) fn for_dump() -> Result<DumpRequest, Error> {
    match read()? {
        Some(request) => Ok(request),
        None => Ok(DumpRequest {
            image_id: ImageId::random().map_err(Error::ImageId)?,
            tier: Tier::Portable,
            directory: None,
            earlier: None,
            threads: threads(),
            compression: None,
            // Nobody told us that the tasks are to end, so they may go on.
            after: After::GoOn,
            minimum_mib: MINIMUM_MIB,
            cuda: CudaPids::default(),
            progress: None,
            report: None,
        }),
    }
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
