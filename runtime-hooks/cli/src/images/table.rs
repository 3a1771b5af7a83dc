//! The images as a table, and below it why some cannot be restored, and notes.

use comfy_table::Cell;
use stasis_locate::whose::called;
use stasis_memory_store::PacksIn;
use stasis_transfer::{Origin, RemoteLocation};

use super::verify::{Refused, VerifyReport};
use crate::answer::amount::size;
use crate::answer::name;
use crate::answer::table::{BAD, GOOD, cell, id, or_none, table};

/// Draws the images, with what was asked of them in the last column.
pub(super) fn of(rows: &[VerifyReport], asked: &'static str) -> String {
    let columns = [
        ("IMAGE", 0),
        ("CONTAINER", 2),
        ("CREATED", 3),
        ("GPU MEMORY", 5),
        ("FILES", 6),
        ("CONTENTS", 4),
        (asked, 1),
    ];
    let mut text = table(&columns, rows.iter().map(row).collect());
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

/// Describes where it came from and where it was pushed, a line each.
pub(super) fn origin(origin: &Origin) -> Vec<String> {
    let line = |did: &str, place: &RemoteLocation| {
        let RemoteLocation {
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

fn row(row: &VerifyReport) -> Vec<Cell> {
    let manifest = row.manifest.as_ref();
    let restorable = match (row.restorable, row.kind) {
        (Some(true), _) => cell("yes").fg(GOOD),
        (Some(false), Some(kind)) => cell(kind.name()).fg(BAD),
        _ => cell("unknown").fg(BAD),
    };
    vec![
        cell(row.image.display().to_string()),
        manifest.map_or_else(
            || cell("-"),
            |manifest| id(&called(&row.image, &manifest.container)),
        ),
        or_none(manifest.map(|manifest| &manifest.created)),
        or_none(row.gpu_bytes.map(size)),
        cell(size(row.bytes)),
        contents(row),
        restorable,
    ]
}

/// Names the place of its GPU contents.
fn contents(row: &VerifyReport) -> Cell {
    let memory = row.manifest.as_ref();
    let memory = memory.and_then(|manifest| manifest.memory.as_ref());
    match (memory.map(|memory| memory.packs_in), &row.contents) {
        (None, _) => cell("-"),
        (Some(PacksIn::Image), _) => cell("in the image"),
        (Some(PacksIn::Directory), Some(directory)) => cell(directory.display().to_string()),
        (Some(PacksIn::Directory), None) => cell("apart"),
    }
}
