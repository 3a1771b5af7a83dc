//! `stasis restore --group`: restores all containers of a group, with one outcome.
//!
//! Each is restored by the runtime in a bundle of its own, tied to the others as in a checkpoint.
//! No process goes on before all containers are restored; if one of them fails before that, all
//! restored processes are ended. The images are only read.

mod members;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use stasis_config::Settings;
use stasis_engine::operation::undo::{Begun, Undo};
use stasis_engine::operation::verb::Verb;
use stasis_group::file::{NewGroup, restore::remove_left};
use stasis_group::parent;
use stasis_host::time::rfc3339;

use super::outcome::{self, report};
use super::row::Row;
use super::{lead, unusable};
use crate::answer::exit::Exit;
use crate::answer::{Format, show_all};
use crate::command_error::{CommandError, GroupError};
use crate::log::past::Past;
use crate::through_engine::outcome::Outcome;
use crate::through_engine::progress::Shown;
use crate::through_engine::restore_dry_run::DryRun;
use crate::through_engine::restore_way::{RestoreWay, Wanted};
use members::{Member, find};

/// The request.
#[derive(Debug)]
pub(in crate::through_engine) struct RestoreWanted<'a> {
    /// The directory of the group.
    pub(in crate::through_engine) from: &'a Path,
    /// "NAME=DIRECTORY" of each container.
    pub(in crate::through_engine) bundles: &'a [PathBuf],
    /// The root of their low-level runtime, if one was named.
    pub(in crate::through_engine) root: Option<&'a Path>,
    /// The file of the settings, if one was named.
    pub(in crate::through_engine) config: Option<&'a Path>,
    pub(in crate::through_engine) shown: Shown,
    pub(in crate::through_engine) format: Format,
}

/// Restores the containers and returns the exit code.
///
/// # Errors
/// Nothing was done.
pub(in crate::through_engine) fn restore(
    settings: &Settings,
    wanted: &RestoreWanted<'_>,
) -> Result<Exit, CommandError> {
    let directory = std::path::absolute(wanted.from).map_err(unusable(wanted.from))?;
    let members = find(settings, wanted, &directory)?;
    let runtimes = members
        .iter()
        .map(|member| member.runtime(settings, wanted.config));
    let runtimes: Vec<_> = runtimes.collect::<Result<_, _>>()?;
    let group = begin(settings, &members)?;
    let start = Instant::now();
    let children = members.iter().zip(runtimes);
    let children = children.map(|(one, runtime)| one.child(settings, runtime, &group));
    let ended = lead(
        settings,
        &group,
        children.collect(),
        wanted.shown,
        parent::restore,
    )?;
    group.forget(|id| is_needed(settings, id));
    let rows = members.iter().zip(ended.each).map(|(member, ended)| {
        let image = Some(member.image.clone());
        Row::of(&member.name, &member.id, None, image, ended)
    });
    let outcome = outcome::Group::of(None, &directory, ended.why.as_ref(), rows.collect());
    Ok(report(&outcome.taking(start.elapsed()), wanted.format)?)
}

/// Reports of each whether a restore of it alone would begin, and returns the exit code.
pub(in crate::through_engine) fn dry_run(
    settings: &Settings,
    wanted: &RestoreWanted<'_>,
) -> Result<Exit, CommandError> {
    let directory = std::path::absolute(wanted.from).map_err(unusable(wanted.from))?;
    let members = find(settings, wanted, &directory)?;
    let past = Past::read(&settings.paths.log_dir).map_err(CommandError::Log)?;
    let all: Vec<DryRun> = members
        .iter()
        .map(|member| {
            let image = member.image.display().to_string();
            let of_one = Wanted {
                name: &member.id,
                image: Some(&image),
                options: &BTreeSet::new(),
                engine: None,
            };
            let root = Some(member.root.as_path());
            let bundle = &member.bundle;
            let way = RestoreWay::of_runtime(settings, of_one, bundle, root, wanted.config);
            let begun = Outcome::begun(&member.name, Some(member.id.clone()), None);
            let predicted = past.predicted(Verb::Restore, &member.id);
            DryRun::of(settings, begun, way, predicted)
        })
        .collect();
    show_all("containers", &all, wanted.format)?;
    Ok(Exit::of_all(all.iter().map(|one| !one.is_refused())))
}

/// Makes the file that decides the outcome, and removes such files that no operation needs.
fn begin(settings: &Settings, members: &[Member]) -> Result<NewGroup, GroupError> {
    let state_dir = &settings.paths.state_dir;
    let begin = || {
        remove_left(state_dir, |id| is_needed(settings, id))?;
        let created = rfc3339(SystemTime::now());
        NewGroup::begin_restore(
            state_dir,
            created,
            members.iter().map(Member::describe).collect(),
        )
    };
    begin().map_err(unusable(state_dir))
}

/// Returns whether a killed operation still needs the decision on this group; `true` if records
/// cannot be read.
fn is_needed(settings: &Settings, id: &str) -> bool {
    let is_of_it = |undo: &Undo| match &undo.begun {
        Begun::Restore(restore) => restore
            .shared
            .as_ref()
            .is_some_and(|shared| shared.id == id),
        _ => false,
    };
    Undo::all(&settings.paths.state_dir).map_or(true, |records| records.iter().any(is_of_it))
}
