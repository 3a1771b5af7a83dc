//! `stasis checkpoint --group`, `stasis restore --group`: several containers, with one outcome for
//! all.
//!
//! Engines have no such verbs. So the runtime is called for each, with the others tied to it, and
//! an engine takes a container that has ended for one that was killed.

mod members;
mod outcome;
mod progress;
pub(super) mod restore;
mod row;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Instant, SystemTime};

use stasis_config::Settings;
use stasis_engine::operation::outcome::COMPLETE;
use stasis_engine::request::{AfterDump, CriuOption};
use stasis_group::file::{NewGroup, clear_undecided};
use stasis_group::parent::{self, Child, EndOfAll, Operations};
use stasis_host::cancel::Cancel;
use stasis_host::time::rfc3339;

use super::checkpoint_way::{Wanted, runtime};
use super::dry_run::DryRun;
use super::outcome::Outcome;
use super::progress::Shown;
use crate::answer::exit::Exit;
use crate::answer::{Format, show_all};
use crate::check::check;
use crate::command_error::{CommandError, GroupError};
use crate::log::past::Past;
use members::{Member, find};
use outcome::report;
use progress::GroupLine;

/// The request.
#[derive(Debug)]
pub(super) struct GroupWanted<'a> {
    pub(super) names: &'a [String],
    pub(super) pod: Option<&'a str>,
    pub(super) into: &'a Path,
    pub(super) after: AfterDump,
    /// Additional options for CRIU's dump.
    pub(super) options: &'a BTreeSet<CriuOption>,
    /// The root of their low-level runtimes, if one was named.
    pub(super) root: Option<&'a Path>,
    /// The file of the settings, if one was named.
    pub(super) config: Option<&'a Path>,
    pub(super) shown: Shown,
    pub(super) format: Format,
}

/// Checkpoints the containers and returns the exit code.
///
/// # Errors
/// Nothing was done.
pub(super) fn checkpoint(
    settings: &Settings,
    wanted: &GroupWanted<'_>,
) -> Result<Exit, CommandError> {
    let directory = std::path::absolute(wanted.into).map_err(unusable(wanted.into))?;
    let members = find(wanted, &directory)?;
    let runtimes = members
        .iter()
        .map(|member| member.runtime(settings, wanted));
    let runtimes: Vec<_> = runtimes.collect::<Result<_, _>>()?;
    let group = begin(&directory, wanted.after, &members)?;
    let start = Instant::now();
    let children = members.iter().zip(runtimes);
    let children = children.map(|(one, runtime)| one.child(settings, runtime, wanted, &group));
    let ended = lead(
        settings,
        &group,
        children.collect(),
        wanted.shown,
        parent::checkpoint,
    )?;
    remove_empty(&directory, &members);
    let is_complete = ended.why.is_none();
    let rows = members.iter().zip(ended.each);
    let rows = rows.map(|(member, ended)| member.row(is_complete, ended));
    let (after, why) = (Some(wanted.after), ended.why.as_ref());
    let outcome = outcome::Group::of(after, &directory, why, rows.collect());
    Ok(report(&outcome.taking(start.elapsed()), wanted.format)?)
}

/// Leads the containers' operations through their course, and shows how far they are.
fn lead(
    settings: &Settings,
    group: &NewGroup,
    children: Vec<Child>,
    shown: Shown,
    course: fn(Operations<'_>) -> EndOfAll,
) -> io::Result<EndOfAll> {
    Ok(course(Operations {
        watch: &mut GroupLine::of(&children, shown),
        group,
        children,
        limit: settings.deadlines.group(),
        cancel: Cancel::on_signals()?,
    }))
}

/// Reports each container's blockers and expected cost, and returns the exit code.
pub(super) fn dry_run(settings: &Settings, wanted: &GroupWanted<'_>) -> Result<Exit, CommandError> {
    let directory = std::path::absolute(wanted.into).map_err(unusable(wanted.into))?;
    let members = find(wanted, &directory)?;
    refuse_used(&directory)?;
    let past = Past::read(&settings.paths.log_dir).map_err(CommandError::Log)?;
    let mut all = Vec::new();
    for member in &members {
        let image = member.image.display().to_string();
        let of_one = Wanted {
            image: Some(&image),
            after: wanted.after,
            options: wanted.options,
            config: wanted.config,
        };
        let way = runtime(settings, &member.located, of_one);
        let id = Some(member.located.container.id().to_owned());
        let begun = Outcome::begun(&member.name, id, member.known.engine);
        let (located, after) = (&member.located, wanted.after);
        let context = located.context(settings.clone(), Cancel::not_needed());
        let report = check(&context, &located.container, wanted.options)?;
        all.push(DryRun::of(
            settings, located, report, begun, way, after, &past,
        )?);
    }
    show_all("containers", &all, wanted.format)?;
    Ok(Exit::of_all(all.iter().map(DryRun::would_begin)))
}

/// Makes the directory and the file that decides the outcome.
fn begin(directory: &Path, after: AfterDump, members: &[Member]) -> Result<NewGroup, GroupError> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(unusable(directory))?;
    refuse_used(directory)?;
    clear_undecided(directory).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => GroupError::Busy(directory.to_owned()),
        _ => unusable(directory)(error),
    })?;
    let created = rfc3339(SystemTime::now());
    let members = members.iter().map(Member::describe).collect();
    NewGroup::begin(directory, created, after, members).map_err(unusable(directory))
}

fn refuse_used(directory: &Path) -> Result<(), GroupError> {
    match directory.join(COMPLETE).symlink_metadata() {
        Ok(_) => Err(GroupError::Holds(directory.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(directory)(error)),
    }
}

/// Removes directories that a failed checkpoint has left empty.
fn remove_empty(directory: &Path, members: &[Member]) {
    for member in members {
        let _ = fs::remove_dir(&member.image);
    }
    let _ = fs::remove_dir(directory);
}

fn unusable(path: &Path) -> impl Fn(io::Error) -> GroupError {
    let path = path.to_owned();
    move |source| GroupError::Directory {
        path: path.clone(),
        source,
    }
}
