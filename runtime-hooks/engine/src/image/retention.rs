//! Decides which old images are removed: the one rule behind `restore.keep_at_stop`,
//! `restore.keep_pulled` and `stasis gc`.
//!
//! Of a set (a key, a container, all pulled images) the newest whole images stay, as many as are to
//! be kept, and every one that is in use. An image that is not whole takes no place among these: it
//! is never counted in favour of removing a whole one.

use std::path::Path;
use std::time::SystemTime;

use stasis_memory_store::{INDEX_FILE, ImageId};

use crate::image::directory::{has_inventory, is_settled};
use crate::image::files::have_lengths;
use crate::image::manifest::Manifest;

/// The completeness of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// All that a restore reads.
    Whole,
    /// CRIU was done with it, but it is not sealed, not in its place, or lacks a part. It may be
    /// the last copy all the same.
    Doubtful,
    /// CRIU was not done with it: it cannot be restored.
    CutOff,
}

/// An image of a set.
#[derive(Debug, Clone)]
pub struct Candidate<O> {
    /// The newest has the largest.
    pub order: O,
    /// When it was made, if it is known: only [`Rule::before`] asks.
    pub created: Option<SystemTime>,
    /// Whether it is whole.
    pub state: Completeness,
    /// Whether a process uses it.
    pub is_used: bool,
}

/// How many images of a set are kept. Without either, only images that were cut off go.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rule {
    /// This many whole ones; with 0 even the newest goes.
    pub keep: Option<usize>,
    /// Images made since this time stay; with `keep` an image has to be both, older and one too
    /// many, to go.
    pub before: Option<SystemTime>,
}

/// Why an image is not to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// There are as many newer ones as are kept.
    Newer,
    /// The image is older than the images that are kept.
    Old,
    /// Its checkpoint was cut off.
    CutOff,
}

/// An image that is not to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotKept {
    /// Its place in the set.
    pub index: usize,
    /// The reason.
    pub why: Why,
    /// A process uses it, so it stays for now.
    pub is_used: bool,
}

/// Returns the images of a set that are not to be kept, the newest first.
pub fn not_kept<O: Ord>(set: &[Candidate<O>], rule: Rule) -> Vec<NotKept> {
    let mut newest_first: Vec<(usize, &Candidate<O>)> = set.iter().enumerate().collect();
    newest_first.sort_by(|(_, one), (_, other)| other.order.cmp(&one.order));
    let (mut newer, mut not_kept) = (0, Vec::new());
    for (index, candidate) in newest_first {
        not_kept.extend(rule.why(candidate, newer).map(|why| NotKept {
            index,
            why,
            is_used: candidate.is_used,
        }));
        newer += usize::from(candidate.state == Completeness::Whole);
    }
    not_kept
}

impl Rule {
    /// Keeps the last `keep` images.
    pub fn last(keep: usize) -> Self {
        Self {
            keep: Some(keep),
            before: None,
        }
    }

    /// Returns why an image with this many newer whole ones is not kept.
    fn why<O>(self, image: &Candidate<O>, newer: usize) -> Option<Why> {
        if image.state == Completeness::CutOff {
            return Some(Why::CutOff);
        }
        let is_too_many = |keep| newer >= keep;
        let is_old = |before| image.created.is_some_and(|created| created < before);
        let why = match (self.keep, self.before) {
            (None, None) => None,
            (Some(keep), None) => is_too_many(keep).then_some(Why::Newer),
            (None, Some(before)) => is_old(before).then_some(Why::Old),
            (Some(keep), Some(before)) => (is_too_many(keep) && is_old(before)).then_some(Why::Old),
        };
        why.filter(|_| newer > 0 || self.keep == Some(0))
    }
}

impl Why {
    /// The reason, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Newer => "enough newer images of its container are kept",
            Self::Old => "it is older than images to keep",
            Self::CutOff => "its checkpoint was killed",
        }
    }
}

/// Returns the completeness of the image in a directory. Contents are not read, but lengths are: a
/// machine that lost power leaves empty files. `are_there` finds GPU contents that lie apart.
pub fn state_of(image: &Path, are_there: impl Fn(ImageId) -> bool) -> Completeness {
    if !is_settled(image) {
        return Completeness::Doubtful;
    }
    if !has_inventory(image) {
        return Completeness::CutOff;
    }
    let is_whole = match Manifest::read(image) {
        Ok(Some(manifest)) => {
            manifest.contents_apart().is_none_or(are_there)
                && manifest
                    .files
                    .is_some_and(|files| have_lengths(image, &files))
        }
        // A plain image is CRIU's alone.
        Ok(None) => image.join(INDEX_FILE).symlink_metadata().is_err(),
        Err(_) => false,
    };
    match is_whole {
        true => Completeness::Whole,
        false => Completeness::Doubtful,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn image(second: u64, state: Completeness) -> Candidate<u64> {
        Candidate {
            order: second,
            created: Some(at(second)),
            state,
            is_used: false,
        }
    }

    /// Returns the images that go of six, one of which is cut off, and two doubtful.
    fn gone(keep: Option<usize>, before: Option<u64>) -> String {
        let set = [
            image(1, Completeness::Whole),
            image(2, Completeness::Doubtful),
            image(3, Completeness::Whole),
            image(4, Completeness::CutOff),
            image(5, Completeness::Whole),
            image(6, Completeness::Doubtful),
        ];
        let before = before.map(at);
        let gone = not_kept(&set, Rule { keep, before });
        gone.iter()
            .map(|gone| set[gone.index].order.to_string())
            .collect()
    }

    #[test]
    fn the_newest_whole_ones_stay_and_no_other_is_counted() {
        assert_eq!(gone(None, None), "4", "a rest alone");
        assert_eq!(gone(Some(3), None), "4");
        assert_eq!(gone(Some(2), None), "421");
        assert_eq!(gone(Some(1), None), "4321");
        assert_eq!(gone(Some(0), None), "654321");
        assert_eq!(gone(None, Some(9)), "4321", "5 is the newest whole one");
        assert_eq!(gone(None, Some(2)), "41");
        assert_eq!(gone(Some(1), Some(3)), "421");
        assert_eq!(gone(Some(0), Some(4)), "4321");
    }

    #[test]
    fn an_image_that_does_not_say_when_it_was_made_is_not_old() {
        let mut set = [image(1, Completeness::Whole), image(3, Completeness::Whole)];
        set[0].created = None;
        let (keep, before) = (None, Some(at(9)));
        assert_eq!(not_kept(&set, Rule { keep, before }), []);
    }

    fn any_set() -> impl Strategy<Value = Vec<Candidate<u64>>> {
        let state = prop_oneof![
            Just(Completeness::Whole),
            Just(Completeness::Doubtful),
            Just(Completeness::CutOff)
        ];
        let images = proptest::collection::vec((state, any::<bool>()), 0..12);
        let images = images.prop_map(|images| {
            let images = images.into_iter().zip(1..);
            let image = |((state, is_used), second)| Candidate {
                is_used,
                ..image(second, state)
            };
            images.map(image).collect::<Vec<_>>()
        });
        images.prop_shuffle()
    }

    proptest! {
        #[test]
        fn nothing_goes_that_is_needed(
            set in any_set(),
            keep in proptest::option::of(1_usize..4),
            before in proptest::option::of(0_u64..14),
        ) {
            let rule = Rule { keep, before: before.map(at) };
            let not_kept = not_kept(&set, rule);
            let is_whole = |image: &&Candidate<u64>| image.state == Completeness::Whole;
            let newest = set.iter().filter(is_whole).map(|image| image.order).max();
            for gone in &not_kept {
                let image = &set[gone.index];
                prop_assert_eq!(gone.is_used, image.is_used);
                prop_assert!(Some(image.order) != newest, "the newest whole one");
                if image.state == Completeness::CutOff {
                    continue;
                }
                let newer = set.iter().filter(is_whole).filter(|one| one.order > image.order);
                prop_assert!(newer.count() >= keep.unwrap_or(1), "fewer stay than are kept");
            }
        }

        #[test]
        fn what_is_not_whole_changes_nothing_for_what_is(
            set in any_set(),
            keep in 0_usize..4,
        ) {
            let whole = |set: &[Candidate<u64>]| {
                let gone = not_kept(set, Rule::last(keep)).into_iter().map(|gone| &set[gone.index]);
                let gone = gone.filter(|image| image.state == Completeness::Whole);
                gone.map(|image| image.order).collect::<Vec<_>>()
            };
            let mut alone = set.clone();
            alone.retain(|image| image.state == Completeness::Whole);
            prop_assert_eq!(whole(&set), whole(&alone));
        }
    }
}
