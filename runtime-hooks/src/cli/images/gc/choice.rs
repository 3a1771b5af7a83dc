//! Which images go.

use std::collections::HashMap;
use std::time::SystemTime;

use super::found::Image;

/// What is to be kept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Choice {
    /// So many of each container.
    pub(super) keep: Option<usize>,
    /// What is not older than this.
    pub(super) before: Option<SystemTime>,
}

/// Why an image goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its container has as many newer ones as are kept.
    Newer,
    /// It is older than what is kept.
    Old,
    /// Its checkpoint was cut off.
    Incomplete,
}

/// The images that go, the newest of each container first. Without a choice it is those alone that
/// are not complete.
pub(super) fn chosen(images: &[Image], choice: Choice) -> Vec<(&Image, Why)> {
    // Of the same second the later one counts as newer: they come in the order of the log.
    let mut newest_first: Vec<&Image> = images.iter().rev().collect();
    newest_first.sort_by_key(|image| std::cmp::Reverse(image.created_at));
    let mut newer: HashMap<&str, usize> = HashMap::new();
    let mut chosen = Vec::new();
    for image in newest_first {
        if !image.is_complete {
            chosen.push((image, Why::Incomplete));
            continue;
        }
        let newer = newer.entry(&image.container).or_default();
        chosen.extend(choice.why(image, *newer).map(|why| (image, why)));
        *newer += 1;
    }
    chosen
}

impl Why {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Newer => "its container has as many newer ones as are kept",
            Self::Old => "it is older than what is kept",
            Self::Incomplete => "its checkpoint was cut off",
        }
    }
}

impl Choice {
    /// Why an image with so many newer complete ones goes; `None`: it stays.
    fn why(self, image: &Image, newer: usize) -> Option<Why> {
        let is_too_many = |keep| newer >= keep;
        let is_old = |before| image.created_at.is_some_and(|created| created < before);
        let why = match (self.keep, self.before) {
            (None, None) => None,
            (Some(keep), None) => is_too_many(keep).then_some(Why::Newer),
            (None, Some(before)) => is_old(before).then_some(Why::Old),
            (Some(keep), Some(before)) => (is_too_many(keep) && is_old(before)).then_some(Why::Old),
        };
        why.filter(|_| newer > 0 || self.keep == Some(0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Of two containers: the newer of the first is not complete.
    fn images() -> Vec<Image> {
        [
            ("a", 1, true),
            ("b", 2, true),
            ("a", 3, true),
            ("a", 4, false),
            ("b", 5, true),
        ]
        .map(|(container, created, is_complete)| Image {
            directory: format!("/images/{created}").into(),
            container: container.to_owned(),
            created: created.to_string(),
            created_at: Some(at(created)),
            is_complete,
            bytes: 0,
            image_id: None,
            kept: None,
            has_rest: false,
        })
        .into()
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn gone(keep: Option<usize>, before: Option<u64>) -> String {
        let images = images();
        let choice = Choice {
            keep,
            before: before.map(at),
        };
        let chosen = chosen(&images, choice);
        chosen
            .iter()
            .map(|(image, _)| image.created.as_str())
            .collect()
    }

    #[test]
    fn the_newest_complete_one_stays_unless_none_is_kept() {
        assert_eq!(gone(None, None), "4", "a rest alone");
        assert_eq!(gone(Some(2), None), "4");
        assert_eq!(gone(Some(1), None), "421");
        assert_eq!(gone(Some(0), None), "54321");
        assert_eq!(gone(None, Some(9)), "421", "3 and 5 are the newest");
        assert_eq!(gone(None, Some(2)), "41");
        assert_eq!(gone(Some(1), Some(2)), "41");
        assert_eq!(gone(Some(0), Some(3)), "421");
    }

    #[test]
    fn of_the_same_second_the_last_one_that_was_logged_is_the_newest() {
        let mut images = images();
        images
            .iter_mut()
            .for_each(|image| image.created_at = Some(at(1)));
        let choice = Choice {
            keep: Some(1),
            before: None,
        };
        let gone: Vec<&str> = chosen(&images, choice)
            .iter()
            .map(|(image, _)| image.created.as_str())
            .collect();
        assert_eq!(gone, ["4", "2", "1"]);
    }

    #[test]
    fn an_image_that_does_not_say_when_it_was_made_is_not_old() {
        let mut images = images();
        images[0].created_at = None;
        let choice = Choice {
            keep: None,
            before: Some(at(9)),
        };
        let gone = chosen(&images, choice);
        assert!(gone.iter().all(|(image, _)| image.created != "1"));
    }
}
