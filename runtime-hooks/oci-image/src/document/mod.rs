//! The JSON documents of OCI. Fields that are not ours are left alone, as OCI asks for; but no key
//! is there twice: who reads the first and who reads the last would read two documents.

pub mod annotations;
pub mod announcement;
pub mod descriptor;
pub mod index;
pub mod manifest;
mod once;

use serde::de::DeserializeOwned;

use once::EachOnce;

/// Reads an untrusted document.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let checked = serde_json::from_slice::<EachOnce>(text);
    checked.map_err(|error| error.to_string())?;
    serde_json::from_slice(text).map_err(|error| error.to_string())
}
