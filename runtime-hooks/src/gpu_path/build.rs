//! Which builds of libcuda have their copying shared out: those that have passed the self-test on
//! this node.

use std::io;

use stasis_config::Settings;
use stasis_injection::slots;
use stasis_linux::{ProcessRef, error_chain};

use super::self_test::{self, Verdict};

/// Tries this node's build, if one of these processes has one of which nothing is known: that takes
/// seconds, once. Returns why it could not be tried, if so.
pub(super) fn try_unknown<'p>(
    settings: &Settings,
    processes: impl IntoIterator<Item = &'p ProcessRef>,
) -> Option<String> {
    let is_unknown = |process| {
        let build_id = slots::build_id(process);
        build_id.is_ok_and(|build_id| self_test::passed(settings, &build_id).is_none())
    };
    if !processes.into_iter().any(is_unknown) {
        return None;
    }
    let cannot = self_test::run(settings).err()?;
    let why = error_chain(&cannot);
    Some(format!("the self-test cannot be run: {why}"))
}

/// Refuses a process whose build has not passed.
///
/// # Errors
/// Why it has not.
pub(super) fn admit(settings: &Settings, process: &ProcessRef) -> io::Result<()> {
    let build_id = slots::build_id(process).map_err(io::Error::other)?;
    let why = match self_test::passed(settings, &build_id) {
        Some(Verdict::Passed | Verdict::PassedOnceLoaded { .. }) => return Ok(()),
        Some(Verdict::NotPassed { why }) => format!("has not passed the self-test: {why}"),
        None => "was not tried on this node (`stasis check --machine` tries it)".to_owned(),
    };
    let refused = format!("build {build_id} of libcuda {why}");
    Err(io::Error::other(refused))
}

/// Whether contents of a process may still be loaded while they are copied. One whose build is not
/// known to wait for them is copied once all are there.
pub(super) fn waits_for_loading(settings: &Settings, process: &ProcessRef) -> bool {
    let build_id = slots::build_id(process);
    build_id.is_ok_and(|id| self_test::passed(settings, &id) == Some(Verdict::Passed))
}
