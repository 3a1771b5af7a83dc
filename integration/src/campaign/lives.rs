//! The lives of a container that is saved at its stops, and the images that have to be there.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::campaign::workload::Reading;

/// Settings under which containers are saved at their stops, and the next ones begin with that.
pub(super) const SETTINGS: &str = "restore.at_create = \"/images\"\nrestore.keep_at_stop = 2\n";
/// `restore.keep_at_stop`.
const KEPT: usize = 2;

/// The history of a container, from one cold start to the next.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// The whole images, by name, so in their order.
    pub(super) images: BTreeMap<String, Saved>,
    /// The life that it is in, or was in last.
    pub(super) life: u32,
    /// How many cold starts there were.
    begun: u32,
    /// Its beginning, from its last create.
    pub(super) first: First,
}

/// The beginning of a container.
#[derive(Debug, Default)]
pub(super) enum First {
    /// Nothing: it starts cold.
    #[default]
    Nothing,
    /// This image.
    Image(String),
}

/// A whole image.
#[derive(Debug)]
pub(super) struct Saved {
    /// The reading of the workload at the save.
    pub(super) reading: Reading,
    pub(super) life: u32,
}

impl Lives {
    /// The name of the newest whole image.
    pub(super) fn newest(&self) -> Option<&String> {
        self.images.keys().next_back()
    }

    /// Begins a new life.
    pub(super) fn starts_cold(&mut self) {
        self.begun += 1;
        self.life = self.begun;
    }

    /// Goes on with the life of an image; returns the image's reading.
    pub(super) fn goes_on_with(&mut self, image: &str) -> Result<Reading> {
        let saved = self.images.get(image).context("no image that is known")?;
        self.life = saved.life;
        Ok(saved.reading.clone())
    }

    /// Returns the images that no stop of this life may have removed.
    pub(super) fn kept(&self) -> impl Iterator<Item = &String> {
        let own = |saved: &Saved| saved.life == self.life;
        let own_names = self
            .images
            .iter()
            .rev()
            .filter(move |(_, saved)| own(saved));
        let others = self.images.iter().filter(move |(_, saved)| !own(saved));
        own_names.take(KEPT).chain(others).map(|(name, _)| name)
    }
}
