//! The engine's request for a dump or restore. Without an engine (stock runc with our plugin
//! directory) there is none.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use stasis_memory_store::REQUEST_VARIABLE;

use crate::error::Error;

/// The request, if there is one.
pub(crate) fn read<T: DeserializeOwned>() -> Result<Option<T>, Error> {
    let Some(path) = std::env::var_os(REQUEST_VARIABLE).map(PathBuf::from) else {
        return Ok(None);
    };
    let read = || serde_json::from_slice(&fs::read(&path)?).map_err(io::Error::from);
    match read() {
        Ok(request) => Ok(Some(request)),
        Err(source) => Err(Error::Request { path, source }),
    }
}
