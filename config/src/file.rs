//! Reads the settings file, which decides what root runs.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::SettingsError;

const MAX_BYTES: u64 = 64 << 10;

/// The text of a file that must exist.
pub(crate) fn read(path: &Path) -> Result<String, SettingsError> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    read_open(path, &file)
}

/// The text of a file that may be absent.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, SettingsError> {
    match File::open(path) {
        Ok(file) => read_open(path, &file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(unreadable(path, source)),
    }
}

/// Checks the open file itself, so that no other file can be read than the checked one.
fn read_open(path: &Path, file: &File) -> Result<String, SettingsError> {
    let metadata = file.metadata().map_err(|source| unreadable(path, source))?;
    trust(&metadata).map_err(|what| SettingsError::Untrusted {
        path: path.to_owned(),
        what,
    })?;
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|source| unreadable(path, source))?;
    Ok(text)
}

fn trust(metadata: &Metadata) -> Result<(), String> {
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    if metadata.len() > MAX_BYTES {
        return Err(format!(
            "{} bytes; at most {MAX_BYTES} are read",
            metadata.len()
        ));
    }
    if metadata.uid() != 0 {
        return Err(format!("owned by uid {}, not by root", metadata.uid()));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!("others than root may write it (mode {mode:04o})"));
    }
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> SettingsError {
    SettingsError::Read {
        path: path.to_owned(),
        source,
    }
}
