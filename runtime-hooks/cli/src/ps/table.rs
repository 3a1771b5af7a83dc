//! The containers as a table.

use std::time::Duration;

use comfy_table::{Cell, Color};

use super::row::Row;
use super::state::ContainerState;
use crate::answer::amount::{age, size};
use crate::answer::table::{BAD, BUSY, GOOD, cell, id, or_none, table};
use crate::log::past::Predicted;
use crate::through_engine::progress::share;

/// The columns, and the order in which a narrow terminal leaves them out.
const COLUMNS: [(&str, u8); 10] = [
    ("CONTAINER", 0),
    ("ENGINE", 6),
    ("GPU", 2),
    ("UUID", 8),
    ("MEMORY", 3),
    ("STATE", 1),
    ("BLOCKERS", 4),
    ("LAST IMAGE", 5),
    ("CHECKPOINT", 7),
    ("RESTORE", 9),
];
/// The length of UUID that tells a machine's GPUs apart: "GPU-" and eight digits.
const SHORT_UUID: usize = 12;

pub(super) fn of(rows: &[Row]) -> String {
    table(&COLUMNS, rows.iter().map(row).collect())
}

fn row(row: &Row) -> Vec<Cell> {
    let engine = row.engine.map(|engine| engine.to_string());
    let each_gpu = |text: &dyn Fn(&super::row::Used) -> String| {
        let gpus: Vec<String> = row.gpus.iter().map(text).collect();
        match gpus.is_empty() {
            true => cell("-"),
            false => Cell::new(gpus.join("\n")),
        }
    };
    vec![
        id(row.name.as_ref().unwrap_or(&row.id)),
        or_none(engine),
        each_gpu(&|gpu| gpu.index.map_or("?".to_owned(), |index| index.to_string())),
        each_gpu(&|gpu| short(&gpu.uuid.to_string(), SHORT_UUID)),
        or_none((!row.gpus.is_empty()).then(|| size(row.gpu_bytes()))),
        state(row),
        blockers(row),
        or_none(last_image(row)),
        or_none(row.predicted_checkpoint.as_ref().map(Predicted::text)),
        or_none(row.predicted_restore.as_ref().map(Predicted::text)),
    ]
}

fn short(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

fn state(row: &Row) -> Cell {
    let tone = match row.state {
        ContainerState::Running => GOOD,
        ContainerState::Failed | ContainerState::Mixed | ContainerState::Unknown => BAD,
        ContainerState::Suspended | ContainerState::Paused | ContainerState::Locked => Color::Reset,
        _ => BUSY,
    };
    let mut text = row.state.name().replace('-', " ");
    if let Some(under_way) = &row.operation {
        text += &format!(": {}", under_way.phase);
        if let Some(percent) = share(under_way) {
            text += &format!(" {percent} %");
        }
    }
    cell(text).fg(tone)
}

fn blockers(row: &Row) -> Cell {
    if !row.blockers.is_empty() {
        return cell(row.blockers.join(", ")).fg(BAD);
    }
    match row.kind {
        Some(kind) if row.state != ContainerState::Paused => cell(kind.name()).fg(BAD),
        _ => cell("-"),
    }
}

fn last_image(row: &Row) -> Option<String> {
    let seconds = row.last_image.as_ref()?.age_seconds?;
    Some(format!("{} ago", age(Duration::from_secs(seconds))))
}
