//! The images as a table, and below it why some cannot be restored.

use std::time::SystemTime;

use stasis_memory_store::PacksIn;

use super::origin::{Origin, Place};
use super::row::Row;
use crate::cli::answer::amount::{age, since, size};
use crate::cli::answer::table::{Cell, Column, Tone, table};

const COLUMNS: [Column; 7] = [
    Column {
        title: "IMAGE",
        spare: 0,
    },
    Column {
        title: "CONTAINER",
        spare: 2,
    },
    Column {
        title: "CREATED",
        spare: 3,
    },
    Column {
        title: "GPU MEMORY",
        spare: 5,
    },
    Column {
        title: "FILES",
        spare: 6,
    },
    Column {
        title: "CONTENTS",
        spare: 4,
    },
    Column {
        title: "RESTORABLE",
        spare: 1,
    },
];

pub(super) fn of(rows: &[Row]) -> String {
    let cells: Vec<Vec<Cell>> = rows.iter().map(row).collect();
    let mut text = table(&COLUMNS, &cells);
    for row in rows {
        for refused in &row.refusals {
            let image = Cell::new(row.image.display().to_string());
            text += &format!("\n{image}: {} [{}]", Cell::new(&refused.text), refused.kind);
        }
        for line in row.origin.iter().flat_map(origin) {
            let image = Cell::new(row.image.display().to_string());
            text += &format!("\n{image}: {}", Cell::new(line));
        }
    }
    text
}

/// The same, and what people should know.
pub(super) fn with_notes(rows: &[Row]) -> String {
    let mut text = of(rows);
    for row in rows {
        for note in &row.notes {
            let image = Cell::new(row.image.display().to_string());
            text += &format!("\n{image}: {}", Cell::new(note));
        }
    }
    text
}

/// Where it came from and went, a line each.
fn origin(origin: &Origin) -> Vec<String> {
    let line = |did: &str, place: &Place| {
        let Place {
            reference,
            digest,
            time,
        } = place;
        format!("{did} {reference}, {digest}, {time}")
    };
    let pulled = origin.pulled.iter().map(|place| line("from", place));
    let pushed = origin.pushed.iter().map(|place| line("pushed to", place));
    pulled.chain(pushed).collect()
}

fn row(row: &Row) -> Vec<Cell> {
    let manifest = row.manifest.as_ref();
    let restorable = match row.kind {
        Some(kind) => Cell::new(kind.name()).toned(Tone::Bad),
        None => Cell::new("yes").toned(Tone::Good),
    };
    vec![
        Cell::path(&row.image),
        manifest.map_or_else(Cell::none, |manifest| Cell::id(&manifest.container)),
        manifest.map_or_else(Cell::none, |manifest| created(&manifest.created)),
        Cell::or_none(manifest.map(|manifest| size(manifest.gpu_bytes))),
        Cell::new(size(row.bytes)),
        contents(row),
        restorable,
    ]
}

/// When, and where there is little room how long ago.
fn created(time: &str) -> Cell {
    let ago = since(time, SystemTime::now()).map(|ago| format!("{} ago", age(ago)));
    Cell::new(time).or_brief(ago)
}

/// Where its GPU contents lie.
fn contents(row: &Row) -> Cell {
    match (row.packs_in, &row.contents) {
        (None, _) => Cell::none(),
        (Some(PacksIn::Image), _) => Cell::new("in the image"),
        (Some(PacksIn::Directory), Some(directory)) => Cell::path(directory),
        (Some(PacksIn::Directory), None) => Cell::new("apart"),
    }
}
