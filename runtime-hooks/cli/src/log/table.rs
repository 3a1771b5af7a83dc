//! Operations as a table.

use comfy_table::Cell;
use stasis_engine::operation::verb::Verb;

use super::line::Line;
use super::names::Named;
use crate::answer::amount::size;
use crate::answer::name;
use crate::answer::names::by_name;
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

pub(super) fn of(lines: &[Named]) -> String {
    let mut text = table(&COLUMNS, lines.iter().map(row).collect());
    for named in lines {
        for remark in remarks(named) {
            let (time, operation) = (name(&named.line.time), name(&named.line.operation));
            text += &format!("\n{time} {operation}: {remark}");
        }
    }
    text
}

/// Lists why it failed or, of a container that was to be created from an image, the notes: why it
/// was started cold is no error.
fn remarks(named: &Named) -> Vec<String> {
    let line = &named.line;
    let shown = |text: &str| name(&by_name(text, &line.container, named.container()));
    let of_create = line.operation == Verb::Create.to_string();
    let notes = line.notes.iter().filter(|_| of_create);
    let notes = notes.map(|note| shown(note));
    line.cause().map(shown).into_iter().chain(notes).collect()
}

fn row(named: &Named) -> Vec<Cell> {
    let line = &named.line;
    let image = line.image_path.as_ref();
    let tone = if line.has_failed() { BAD } else { GOOD };
    vec![
        cell(&line.time),
        cell(&line.operation),
        id(named.container()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_start_has_its_reason_and_a_failure_its_cause() {
        let row = |line: serde_json::Value| {
            let name = Some("job".to_owned());
            let line = serde_json::from_value(line).unwrap();
            of(&[Named { name, line }])
        };
        let cold = row(serde_json::json!({
            "time": "2026-11-25T07:00:00Z", "operation": "create", "container": "abc",
            "notes": ["started cold: there is no image latest:none"],
        }));
        let last = "2026-11-25T07:00:00Z create: started cold: there is no image latest:none";
        assert!(cold.ends_with(last), "{cold}");
        let failed = row(serde_json::json!({
            "time": "2026-11-25T07:00:00Z", "operation": "restore", "container": "abc",
            "error": "restore of container abc failed [criu]: abc is not whole; use another",
            "kind": "criu", "notes": ["a note that only a script needs"],
        }));
        let last = "2026-11-25T07:00:00Z restore: job is not whole; use another";
        assert!(
            failed.ends_with(last) && !failed.contains("abc"),
            "{failed}"
        );
        assert_eq!(failed.matches("criu").count(), 1, "{failed}");
    }
}
