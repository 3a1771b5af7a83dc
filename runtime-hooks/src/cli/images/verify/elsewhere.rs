//! Will it run here? Of an image that is elsewhere, by what it says of itself.

use std::path::Path;

use stasis_config::Settings;

use super::here::judge_machine;
use super::{About, Reading, Report};
use crate::restore::admission::described::Described;

const NOT_KNOWN: &str = "which files and mounts have to be in the new container is known once it \
    is pulled: ask again then, with --bundle";

/// Judges this machine for an image that is called so. Changes nothing.
pub(in crate::cli::images) fn look_elsewhere(
    settings: &Settings,
    called: &str,
    image: &Described,
) -> Report {
    let mut report = Report::of(Path::new(called));
    report.manifest = Some(About::of(&image.manifest));
    if let Err(error) = image.check_plugin(settings) {
        report.refuse(&error.into());
    }
    report.ask(settings, &image.manifest, image.bytes(), Reading::Here);
    judge_machine(settings, &mut report);
    report.notes.push(NOT_KNOWN.to_owned());
    report
}
