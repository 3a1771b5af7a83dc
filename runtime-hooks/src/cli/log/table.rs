//! Operations as a table.

use super::line::Line;
use crate::cli::answer::amount::size;
use crate::cli::answer::table::{Cell, Column, Tone, table};

const COLUMNS: [Column; 8] = [
    Column {
        title: "WHEN",
        spare: 0,
    },
    Column {
        title: "OPERATION",
        spare: 1,
    },
    Column {
        title: "CONTAINER",
        spare: 2,
    },
    Column {
        title: "SECONDS",
        spare: 4,
    },
    Column {
        title: "MOVED",
        spare: 5,
    },
    Column {
        title: "OUTCOME",
        spare: 3,
    },
    Column {
        title: "CALLER",
        spare: 6,
    },
    Column {
        title: "IMAGE",
        spare: 7,
    },
];

pub(super) fn of(lines: &[Line]) -> String {
    let rows: Vec<Vec<Cell>> = lines.iter().map(row).collect();
    let mut text = table(&COLUMNS, &rows);
    for line in lines {
        if let Some(error) = &line.error {
            let error = Cell::new(error);
            text += &format!("\n{} {}: {error}", line.time, line.operation);
        }
    }
    text
}

fn row(line: &Line) -> Vec<Cell> {
    let image = line.image_path.as_ref();
    vec![
        Cell::new(&line.time),
        Cell::new(&line.operation),
        Cell::id(&line.container),
        Cell::new(format!("{:.2}", line.seconds())),
        Cell::or_none(line.bytes().map(size)),
        outcome(line),
        Cell::or_none(line.caller.name.as_ref()),
        image.map_or_else(Cell::none, |image| Cell::path(image)),
    ]
}

/// "done", or the kind of its error.
pub(super) fn outcome(line: &Line) -> Cell {
    if !line.has_failed() {
        return Cell::new("done").toned(Tone::Good);
    }
    let kind = line.kind.as_deref().unwrap_or("failed");
    Cell::new(kind).toned(Tone::Bad)
}
