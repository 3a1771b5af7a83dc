//! `stasis gc`: removes images that are not to be kept, what checkpoints that were cut off have
//! left, and GPU contents whose image cannot be found.

mod found;
mod in_use;
mod outcome;
mod whose;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use clap::Args;
use stasis_config::Settings;
use stasis_engine::bulk_memory::apart::{self, Apart};
use stasis_engine::bulk_memory::in_use::Removed;
use stasis_engine::bulk_memory::places::Places;
use stasis_engine::image::retention::{Candidate, Rule, Why, not_kept};

use crate::answer::amount::size;
use crate::answer::exit::Exit;
use crate::answer::{Format, Output, answer_all, write_line};
use crate::command_error::CommandError;
use crate::log::since::Since;
use found::{Image, NotRemoved};
use in_use::Users;
use outcome::Outcome;
use whose::container;

/// Remove old images, leftovers of checkpoints, and unused contents.
///
/// Chooses among the images of `stasis images` by --keep and --older-than. Always chooses leftovers
/// of killed checkpoints. Removes nothing without --yes.
///
/// Removes GPU contents apart from an image (gpu_contents.directory) together with it. Lists
/// contents whose image cannot be found with their age, and removes them only with --contents: an
/// engine may have packed the image into an archive, which needs them.
///
/// Never removes images that an operation or a process uses, images that other images need, and the
/// newest complete image of a container, unless with `--keep 0`.
///
/// Exit code 0: all chosen images are listed or removed; 1: some stay, and the reason is shown; 2:
/// no such container has left anything, or images cannot be read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Keep this many complete images of each container, and choose older ones.
    #[arg(long, value_name = "NUMBER")]
    keep: Option<usize>,
    /// Choose images older than 30s, 20min, 2h, 7d, or a time such as 2026-11-25T10:30:00Z. With
    /// --keep: images that are both older and too many.
    #[arg(long, value_name = "TIME")]
    older_than: Option<Since>,
    /// Only images of this container: its id, the beginning of its id, or its name.
    #[arg(long, value_name = "ID|NAME")]
    container: Option<String>,
    /// With --yes also remove GPU contents whose image cannot be found; with --older-than only
    /// older ones.
    #[arg(long)]
    contents: bool,
    /// Remove nothing, and show what would be removed. Without --yes this is the default.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Remove what is chosen.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    fn rule(&self) -> Rule {
        Rule {
            keep: self.keep,
            before: self.older_than.map(|Since(time)| time),
        }
    }

    /// Returns the id of the named container; `None`: any, and contents of no known one.
    fn whose(&self, images: &[Image], orphaned: &[Apart]) -> Result<Option<String>, CommandError> {
        let of_images = images.iter().map(|image| image.container.as_str());
        let of_contents = orphaned
            .iter()
            .filter_map(|apart| apart.container.as_deref());
        let ids: BTreeSet<&str> = of_images.chain(of_contents).collect();
        let named = self.container.as_ref();
        named.map(|name| container(name, &ids)).transpose()
    }

    /// Removes something, if that was asked for.
    fn carry_out(
        &self,
        outcome: Outcome,
        remove: impl FnOnce() -> Result<(), NotRemoved>,
    ) -> Outcome {
        match self.yes {
            true => outcome.removed(remove()),
            false => outcome,
        }
    }
}

/// Carries the command out and returns the exit code.
///
/// # Errors
/// The machine's images and contents cannot be listed.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let mut images = found::images(settings)?;
    let mut orphaned = apart::all(settings)?;
    let before = arguments.rule().before;
    orphaned.retain(|apart| before.is_none_or(|before| apart.is_from_before(before)));
    // An image may refer to an image of another container.
    let users = Users::of(settings, &images)?;
    if let Some(id) = arguments.whose(&images, &orphaned)? {
        images.retain(|image| image.container == id);
        orphaned.retain(|apart| apart.container.as_ref() == Some(&id));
    }

    let mut outcomes = of_images(settings, arguments, &images, &users);
    outcomes.extend(of_contents(settings, arguments, &orphaned, &users));
    match arguments.output.format() {
        Format::Json => answer_all("items", &outcomes)?,
        Format::Text => print(&outcomes)?,
    }
    Ok(Exit::of_all(
        outcomes.iter().map(|outcome| !outcome.stays()),
    ))
}

/// Returns outcomes of the images that are not kept, and of rests beside other images.
fn of_images(
    settings: &Settings,
    arguments: &Arguments,
    images: &[Image],
    users: &Users,
) -> Vec<Outcome> {
    let places = Places::of(settings);
    let rests = images.iter().filter(|image| image.has_rest);
    // An operation under way has left no rest.
    let rests = rests.filter(|image| users.user_of(image).is_none());
    let rests =
        rests.map(|image| arguments.carry_out(Outcome::of_rest(image), || image.remove_rest()));
    let chosen = chosen(images, users, arguments.rule()).into_iter();
    let chosen = chosen.map(|(image, why)| {
        let outcome = Outcome::of_image(image, why);
        match users.user_of(image) {
            Some(user) => outcome.in_use(user),
            None => arguments.carry_out(outcome, || image.remove(&places)),
        }
    });
    rests.chain(chosen).collect()
}

/// Returns each container's images that are not kept, the newest first. The clock may have been set
/// back: an image that the log names later is the newer one. Others have their time alone.
fn chosen<'i>(images: &'i [Image], users: &Users, rule: Rule) -> Vec<(&'i Image, Why)> {
    let mut sets: BTreeMap<&str, Vec<&Image>> = BTreeMap::new();
    for image in images {
        sets.entry(&image.container).or_default().push(image);
    }
    let chosen = sets.into_values().flat_map(|set| {
        let mut latest = None;
        let candidate = |(at, image): (usize, &&Image)| {
            let mut order = image.created_at;
            if image.is_logged {
                latest = order.max(latest);
                order = latest;
            }
            Candidate {
                order: (order, at),
                created: image.created_at,
                state: image.state,
                is_used: users.user_of(image).is_some(),
            }
        };
        let candidates: Vec<_> = set.iter().enumerate().map(candidate).collect();
        let not_kept = not_kept(&candidates, rule).into_iter();
        let chosen = not_kept.map(|gone| (set[gone.index], gone.why));
        chosen.collect::<Vec<_>>()
    });
    chosen.collect()
}

/// Returns outcomes of the contents whose image cannot be found.
fn of_contents(
    settings: &Settings,
    arguments: &Arguments,
    all: &[Apart],
    users: &Users,
) -> Vec<Outcome> {
    let places = Places::of(settings);
    let orphaned = all
        .iter()
        .filter_map(|apart| Some((apart, apart.why_orphaned()?)));
    let outcome = |(apart, why): (&Apart, _)| {
        let outcome = Outcome::of_contents(apart, why);
        if !arguments.contents {
            return outcome.only_listed();
        }
        match users.user_at(&apart.directory) {
            Some(user) => outcome.in_use(user),
            None => arguments.carry_out(outcome, || match places.remove(apart.image_id)? {
                Removed::Yes => Ok(()),
                Removed::InUse => Err(NotRemoved::InUse),
            }),
        }
    };
    orphaned.map(outcome).collect()
}

fn print(outcomes: &[Outcome]) -> io::Result<()> {
    if outcomes.is_empty() {
        write_line(&"nothing to remove")?;
    }
    outcomes.iter().try_for_each(write_line)?;
    let would_free: Vec<u64> = outcomes.iter().filter_map(Outcome::would_free).collect();
    if !would_free.is_empty() {
        let bytes = size(would_free.iter().sum());
        write_line(&format!(
            "nothing was removed; --yes removes these, {bytes}"
        ))?;
    }
    Ok(())
}
