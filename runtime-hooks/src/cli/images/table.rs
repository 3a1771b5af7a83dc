//! The images as a table, and below it why some cannot be restored, and what else is to be said.

use std::time::SystemTime;

use stasis_memory_store::PacksIn;

use super::origin::{Origin, Place};
use super::row::Row;
use super::verify::Refused;
use crate::cli::answer::amount::{age, since, size};
use crate::cli::answer::name;
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

/// The images, with what was asked of them in the last column.
pub(super) fn of(rows: &[Row], asked: &'static str) -> String {
    let mut columns = COLUMNS;
    columns[COLUMNS.len() - 1].title = asked;
    let cells: Vec<Vec<Cell>> = rows.iter().map(row).collect();
    let mut text = table(&columns, &cells);
    for row in rows {
        let image = name(&row.image.display());
        let refused = |refused: &Refused| format!("{} [{}]", name(&refused.text), refused.kind);
        let memory = row.memory.iter().map(|memory| {
            let memory = memory.display().to_string();
            format!("GPU contents in {}", name(&memory))
        });
        let lines = row.refusals.iter().map(refused).chain(memory);
        let lines = lines.chain(row.origin.iter().flat_map(origin));
        for line in lines.chain(row.notes.iter().map(name)) {
            text += &format!("\n{image}: {line}");
        }
    }
    text
}

/// Where it came from and went, a line each.
pub(super) fn origin(origin: &Origin) -> Vec<String> {
    let line = |did: &str, place: &Place| {
        let Place {
            reference,
            digest,
            time,
        } = place;
        name(&format!("{did} {reference}, {digest}, {time}"))
    };
    let pulled = origin.pulled.iter().map(|place| line("from", place));
    let pushed = origin.pushed.iter().map(|place| line("pushed to", place));
    pulled.chain(pushed).collect()
}

fn row(row: &Row) -> Vec<Cell> {
    let manifest = row.manifest.as_ref();
    let restorable = match (row.restorable, row.kind) {
        (Some(true), _) => Cell::new("yes").toned(Tone::Good),
        (Some(false), Some(kind)) => Cell::new(kind.name()).toned(Tone::Bad),
        _ => Cell::new("unknown").toned(Tone::Bad),
    };
    vec![
        Cell::path(&row.image),
        manifest.map_or_else(Cell::none, |manifest| Cell::id(&manifest.container)),
        manifest.map_or_else(Cell::none, |manifest| created(&name(&manifest.created))),
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
