//! Where the programs of stasis are.

use std::env;
use std::path::{Path, PathBuf};

use super::SetupError;

/// The programs that engines are told of.
#[derive(Debug)]
pub(super) struct Programs {
    /// The OCI runtime.
    pub(super) runtime: String,
    /// The shim.
    pub(super) shim: String,
}

impl Programs {
    /// Those that were installed with this one.
    pub(super) fn beside_this() -> Result<Self, SetupError> {
        let own = env::current_exe().map_err(|source| SetupError::File {
            what: "read",
            path: "/proc/self/exe".into(),
            source,
        })?;
        let directory = own.parent().unwrap_or(Path::new("/"));
        let beside = |name| text(directory.join(name));
        Ok(Self {
            runtime: beside("stasis-runtime")?,
            shim: beside("containerd-shim-stasis-v2")?,
        })
    }
}

fn text(program: PathBuf) -> Result<String, SetupError> {
    match program.to_str() {
        Some(text) if program.is_file() => Ok(text.to_owned()),
        _ => Err(SetupError::NoProgram(program)),
    }
}
