//! The results: a file for each build of libcuda.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stasis_host::json_record;
use stasis_host::time::rfc3339;
use stasis_injection::slots::{self, BuildId, Refusal};
use stasis_linux::ProcessRef;

use super::Tried;

const MAX_BYTES: u64 = 64 << 10;
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// A result and its versions: it says nothing of other versions.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredVerdict {
    stasis: String,
    kernel: String,
    at: String,
    tried: Tried,
}

impl StoredVerdict {
    pub(super) fn now(tried: Tried) -> Self {
        Self {
            stasis: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel(),
            at: rfc3339(SystemTime::now()),
            tried,
        }
    }

    pub(super) fn write(&self, directory: &Path, build_id: &BuildId) -> io::Result<()> {
        json_record::write(&path(directory, build_id), self)
    }

    fn is_of_this_machine(&self) -> bool {
        self.stasis == env!("CARGO_PKG_VERSION") && self.kernel == kernel()
    }
}

/// Returns the known result. A result that cannot be read is not known: the test is run again.
pub(super) fn read(directory: &Path, build_id: &BuildId) -> Option<Tried> {
    let stored: StoredVerdict = json_record::read(&path(directory, build_id), MAX_BYTES).ok()??;
    stored.is_of_this_machine().then_some(stored.tried)
}

/// The build of the libcuda that this process has loaded.
pub(super) fn own_build_id() -> Result<BuildId, Refusal> {
    slots::build_id(&ProcessRef::own()?)
}

fn path(directory: &Path, build_id: &BuildId) -> PathBuf {
    directory.join(format!("{build_id}.json"))
}

fn kernel() -> String {
    let release = fs::read_to_string(RELEASE).unwrap_or_default();
    release.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu_path::self_test::{Surveys, Verdict};

    fn tried(copying: Verdict) -> Tried {
        let surveys = Surveys::Passed;
        Tried { copying, surveys }
    }

    fn build_id() -> BuildId {
        serde_json::from_str("\"00ab\"").unwrap()
    }

    #[test]
    fn a_result_is_known_until_something_else_is_of_another_version() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(read(directory, &build_id()), None);
        let why = "words are wrong".to_owned();
        for verdict in [Verdict::Passed, Verdict::NotPassed { why }] {
            let stored = StoredVerdict::now(tried(verdict.clone()));
            stored.write(directory, &build_id()).unwrap();
            assert_eq!(read(directory, &build_id()), Some(tried(verdict)));
        }
        let another = serde_json::from_str("\"00ac\"").unwrap();
        assert_eq!(read(directory, &another), None);
        let change: [fn(&mut StoredVerdict); 2] = [
            |stored| stored.kernel = "another".to_owned(),
            |stored| stored.stasis = "another".to_owned(),
        ];
        for change in change {
            let mut stored = StoredVerdict::now(tried(Verdict::Passed));
            change(&mut stored);
            stored.write(directory, &build_id()).unwrap();
            assert_eq!(read(directory, &build_id()), None);
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(path(directory.path(), &build_id()), "{\"tried\":{\"cop").unwrap();
        assert_eq!(read(directory.path(), &build_id()), None);
    }
}
