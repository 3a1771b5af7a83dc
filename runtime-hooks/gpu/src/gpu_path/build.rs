//! Builds of libcuda whose copying may be shared out: only builds that have passed the self-test on
//! this node.

use std::io;
use std::time::Duration;

use stasis_config::Settings;
use stasis_host::deadline::{Overdue, within};
use stasis_injection::slots::{self, BuildId};
use stasis_linux::{ProcessRef, error_chain};

use super::self_test::{self, Verdict};

/// A library is opened and read for its build, on a file system that may not answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Tries this node's build, if one of these processes has a build without a result: that takes
/// seconds, once. Returns why it could not be tried, if so.
pub(super) fn try_unknown<'p>(
    settings: &Settings,
    processes: impl IntoIterator<Item = &'p ProcessRef>,
) -> Option<String> {
    let processes: Vec<ProcessRef> = processes.into_iter().cloned().collect();
    let build_ids = within(LIMIT, move || {
        let build_ids = processes.iter().map(slots::build_id);
        build_ids.filter_map(Result::ok).collect::<Vec<_>>()
    });
    let is_unknown = |build_id| self_test::passed(settings, build_id).is_none();
    // Processes that cannot be inspected get no file either, with a note that says why.
    if !build_ids.unwrap_or_default().iter().any(is_unknown) {
        return None;
    }
    let cannot = self_test::run(settings).err()?;
    let why = error_chain(&cannot);
    Some(format!("the self-test cannot be run: {why}"))
}

/// Refuses a process whose build has not passed.
///
/// # Errors
/// Why the build has not passed.
pub(super) fn admit(settings: &Settings, process: &ProcessRef) -> io::Result<()> {
    let build_id = build_of(process)?;
    let why = match self_test::passed(settings, &build_id) {
        Some(Verdict::Passed | Verdict::PassedOnceLoaded { .. }) => return Ok(()),
        Some(Verdict::NotPassed { why }) => format!("has not passed the self-test: {why}"),
        None => "was not tried on this node (`stasis doctor` tries it)".to_owned(),
    };
    let refused = format!("build {build_id} of libcuda {why}");
    Err(io::Error::other(refused))
}

/// Returns why a process whose build was tried is refused; `None` also if it was not tried yet.
pub fn why_not_passed(settings: &Settings, process: &ProcessRef) -> Option<String> {
    let build_id = build_of(process).ok()?;
    let refused = || admit(settings, process).err().map(|why| why.to_string());
    self_test::passed(settings, &build_id).and_then(|_| refused())
}

/// Whether the checkpoint thread of a process can be asked for shared memory, as far as is known.
pub(super) fn is_surveyed(settings: &Settings, process: &ProcessRef) -> bool {
    build_of(process).is_ok_and(|id| self_test::is_surveyed(settings, &id))
}

/// Whether contents of a process may still be loaded while they are copied. A process whose build
/// is not known to wait for them is copied once all are loaded.
pub(super) fn waits_for_loading(settings: &Settings, process: &ProcessRef) -> bool {
    let build_id = build_of(process);
    build_id.is_ok_and(|id| self_test::passed(settings, &id) == Some(Verdict::Passed))
}

/// Reads the build. The engine waits no longer than this for the file system of a container.
fn build_of(process: &ProcessRef) -> io::Result<BuildId> {
    let looked_at = process.clone();
    let found = within(LIMIT, move || slots::build_id(&looked_at))
        .map_err(|overdue| io::Error::new(io::ErrorKind::TimedOut, UnreadDriver(overdue)))?;
    found.map_err(io::Error::other)
}

/// The text of the note.
#[derive(Debug, thiserror::Error)]
#[error("its libcuda.so cannot be read, as on a file system that does not answer")]
struct UnreadDriver(#[source] Overdue);
