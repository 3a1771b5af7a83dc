//! The names of the containers in the log, which has their ids alone.

use std::collections::BTreeMap;

use serde::Serialize;
use stasis_locate::running;
use stasis_locate::whose::Whose;

use super::line::Line;

/// An operation with the name of its container.
#[derive(Debug, Serialize)]
pub(super) struct Named {
    /// Null if no engine knows the container any more, or it has an id alone.
    pub(super) name: Option<String>,
    #[serde(flatten)]
    pub(super) line: Line,
}

impl Named {
    /// Finds the names of containers that run, and of those whose engine keeps an image with them.
    pub(super) fn all(lines: Vec<Line>) -> Vec<Self> {
        let located = running(None).into_iter();
        let mut names: BTreeMap<String, Option<String>> = located
            .map(|one| (one.container.id().to_owned(), one.known().name))
            .collect();
        for line in &lines {
            let image = line.image_path.as_ref();
            let name = names.entry(line.container.clone()).or_default();
            if let (None, Some(image)) = (&name, image) {
                let whose = Whose::of(image, None);
                let is_its = whose.id.as_ref() == Some(&line.container);
                *name = whose.known.name.filter(|_| is_its);
            }
        }
        let named = |line: Line| Self {
            name: names.get(&line.container).cloned().flatten(),
            line,
        };
        lines.into_iter().map(named).collect()
    }

    /// Returns how people call its container.
    pub(super) fn container(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.line.container)
    }
}
