//! Operations as a table.

use comfy_table::Cell;

use super::line::Line;
use crate::answer::amount::size;
use crate::answer::name;
use crate::answer::table::{BAD, GOOD, cell, id, or_none, table};

const COLUMNS: [(&str, u8); 8] = [
    ("WHEN", 0),
    ("OPERATION", 1),
    ("CONTAINER", 2),
    ("SECONDS", 4),
    ("MOVED", 5),
    ("OUTCOME", 3),
    ("CALLER", 6),
    ("IMAGE", 7),
];

pub(super) fn of(lines: &[Line]) -> String {
    let mut text = table(&COLUMNS, lines.iter().map(row).collect());
    for line in lines {
        if let Some(error) = &line.error {
            let error = name(error);
            text += &format!("\n{} {}: {error}", line.time, line.operation);
        }
    }
    text
}

fn row(line: &Line) -> Vec<Cell> {
    let image = line.image_path.as_ref();
    let tone = if line.has_failed() { BAD } else { GOOD };
    vec![
        cell(&line.time),
        cell(&line.operation),
        id(&line.container),
        cell(format!("{:.2}", line.seconds())),
        or_none(line.bytes().map(size)),
        cell(outcome(line)).fg(tone),
        or_none(line.caller.name.as_ref()),
        or_none(image.map(|image| image.display().to_string())),
    ]
}

/// Returns "done", or the kind of its error.
pub(super) fn outcome(line: &Line) -> &str {
    match line.has_failed() {
        false => "done",
        true => line.kind.as_deref().unwrap_or("failed"),
    }
}
