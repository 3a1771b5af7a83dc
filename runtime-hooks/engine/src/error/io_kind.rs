//! The kinds of I/O errors, and of errors of the memory store.

use std::io;

use stasis_config::SettingsError;
use stasis_memory_store::StoreError;

use crate::error::kind::Kind;

/// The kind of an error of bulk memory that is kept apart from the image.
#[must_use]
pub fn of_store(error: &StoreError) -> Kind {
    match error {
        StoreError::Io { source, .. } => of_image(source),
        StoreError::Full { .. } => Kind::NoSpace,
        StoreError::Damaged { .. } | StoreError::Chunk { .. } | StoreError::CutOff { .. } => {
            Kind::ImageDamaged
        }
        StoreError::Arriving { .. } => Kind::ImageArriving,
        StoreError::Missing { .. } | StoreError::NoDirectory { .. } => Kind::MemoryMissing,
        StoreError::Version { .. } => Kind::ImageVersion,
        StoreError::Needed { problem, .. } => of_store(problem),
        StoreError::TooMuch { .. } => Kind::Unsupported,
        StoreError::MemoryFile { source, .. } => of_io(source, Kind::BulkMemory),
        StoreError::NoFile { .. } | StoreError::Panic | StoreError::Impossible { .. } => {
            Kind::BulkMemory
        }
    }
}

/// The kind of an I/O error about a file of an image: [`Kind::ImageDamaged`] for what is no regular
/// file, or larger than any that is written (`stasis_linux::file`).
#[must_use]
pub fn of_image(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::InvalidData => Kind::ImageDamaged,
        _ => of_io(error, Kind::ImageDirectory),
    }
}

/// The kind of an error of moving GPU contents between memory and the store.
#[must_use]
pub(super) fn of_contents(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::InvalidData => Kind::ImageDamaged,
        _ => of_io(error, Kind::BulkMemory),
    }
}

/// The kind of an I/O error: [`Kind::NoSpace`] for a full file system or quota, [`Kind::Hung`] for
/// what did not happen in time, `other` for the rest.
#[must_use]
pub fn of_io(error: &io::Error, other: Kind) -> Kind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::NoSpace,
        io::ErrorKind::TimedOut => Kind::Hung,
        _ => other,
    }
}

/// Returns the kind of an error of the settings.
#[must_use]
pub fn of_settings(error: &SettingsError) -> Kind {
    match error {
        SettingsError::Runtime { .. } | SettingsError::RuntimeExposed { .. } => {
            Kind::LowLevelRuntime
        }
        SettingsError::Read { .. }
        | SettingsError::Untrusted { .. }
        | SettingsError::Syntax { .. }
        | SettingsError::Value { .. } => Kind::Settings,
    }
}
