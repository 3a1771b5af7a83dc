//! The context of every operation: the settings, the low-level runtime and its root.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stasis_config::{Flavor, LowLevel, Settings, SettingsError};
use stasis_gpu::ledger::WaitLimit;
use stasis_host::cancel::Cancel;
use stasis_host::time::rfc3339;

use crate::container::{Container, ContainerError};

/// The context of an operation.
#[derive(Debug)]
pub struct Context {
    /// The administrator's settings.
    pub settings: Settings,
    /// runc or crun.
    pub low_level: LowLevel,
    /// The low-level runtime's directory of containers.
    pub root: PathBuf,
    /// Whether a signal has requested cancellation.
    pub cancel: Cancel,
    /// When the operation began.
    pub began: SystemTime,
}

/// The root and the program of a low-level runtime: for code that needs no more of a context, and
/// for records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeLocation {
    /// The program.
    pub low_level: LowLevel,
    /// Its directory of containers.
    pub root: PathBuf,
}

/// The outcome of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The caller must exec the low-level runtime with the original arguments.
    PassThrough,
    /// Done; this is the exit code.
    Done(u8),
}

impl Context {
    /// Loads the container; `None` if it does not exist or does not run, which the low-level
    /// runtime reports better.
    ///
    /// # Errors
    /// The container's state exists but cannot be read.
    pub fn container(&self, id: &str) -> Result<Option<Container>, ContainerError> {
        match Container::load(self.low_level.flavor, &self.root, id) {
            Ok(container) => Ok(Some(container)),
            Err(ContainerError::NotFound { .. } | ContainerError::Stopped { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the low-level runtime with its directory of containers.
    pub fn place(&self) -> RuntimeLocation {
        RuntimeLocation {
            low_level: self.low_level.clone(),
            root: self.root.clone(),
        }
    }

    /// How long an operation waits for room.
    pub fn wait_limit(&self) -> WaitLimit {
        WaitLimit::new(self.settings.deadlines.room(), self.cancel.clone())
    }

    /// Returns the directory of containers, with the program that an operation on one of this
    /// flavor calls: it may be another one than in the settings.
    ///
    /// # Errors
    /// [`SettingsError::Runtime`], [`SettingsError::RuntimeExposed`]: there is none.
    pub fn place_found(&self) -> Result<RuntimeLocation, SettingsError> {
        let (runtime, flavor) = (&self.settings.runtime, self.low_level.flavor);
        let low_level = match runtime.resolve() {
            Ok(low_level) if low_level.flavor == flavor => low_level,
            _ => runtime.resolve_instead(Path::new(match flavor {
                Flavor::Runc => "runc",
                Flavor::Crun => "crun",
            }))?,
        };
        Ok(RuntimeLocation {
            low_level,
            root: self.root.clone(),
        })
    }

    /// When the operation began, RFC 3339.
    pub(crate) fn began_text(&self) -> String {
        rfc3339(self.began)
    }
}
