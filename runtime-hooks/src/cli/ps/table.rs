//! The containers as a table.

use std::time::Duration;

use super::row::Row;
use super::state::State;
use crate::cli::answer::amount::{age, size};
use crate::cli::answer::table::{Cell, Column, Tone, table};
use crate::cli::log::past::Predicted;
use crate::operation::progress::UnderWay;

/// The columns, and which of them go first from a narrow terminal.
const COLUMNS: [Column; 10] = [
    Column {
        title: "CONTAINER",
        spare: 0,
    },
    Column {
        title: "ENGINE",
        spare: 6,
    },
    Column {
        title: "GPU",
        spare: 2,
    },
    Column {
        title: "UUID",
        spare: 8,
    },
    Column {
        title: "MEMORY",
        spare: 3,
    },
    Column {
        title: "STATE",
        spare: 1,
    },
    Column {
        title: "BLOCKERS",
        spare: 4,
    },
    Column {
        title: "LAST IMAGE",
        spare: 5,
    },
    Column {
        title: "CHECKPOINT",
        spare: 7,
    },
    Column {
        title: "RESTORE",
        spare: 9,
    },
];
/// As much of a UUID as tells the GPUs of a machine apart: "GPU-" and eight digits.
const SHORT_UUID: usize = 12;

pub(super) fn of(rows: &[Row]) -> String {
    let rows: Vec<Vec<Cell>> = rows.iter().map(row).collect();
    table(&COLUMNS, &rows)
}

fn row(row: &Row) -> Vec<Cell> {
    let engine = row.engine.map(|engine| engine.to_string());
    let each_gpu = |text: &dyn Fn(&super::row::Used) -> String| {
        let gpus: Vec<String> = row.gpus.iter().map(text).collect();
        Cell::or_none((!gpus.is_empty()).then(|| gpus.join("\n")))
    };
    vec![
        Cell::id(row.name.as_ref().unwrap_or(&row.id)),
        Cell::or_none(engine),
        each_gpu(&|gpu| gpu.index.map_or("?".to_owned(), |index| index.to_string())),
        each_gpu(&|gpu| short(&gpu.uuid.to_string(), SHORT_UUID)),
        Cell::or_none((!row.gpus.is_empty()).then(|| size(row.gpu_bytes()))),
        state(row),
        blockers(row),
        Cell::or_none(last_image(row)),
        Cell::or_none(predicted(row.predicted_checkpoint.as_ref())),
        Cell::or_none(predicted(row.predicted_restore.as_ref())),
    ]
}

fn short(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

fn state(row: &Row) -> Cell {
    let tone = match row.state {
        State::Running => Tone::Good,
        State::Failed | State::Mixed | State::Unknown => Tone::Bad,
        State::Suspended | State::Paused | State::Locked => Tone::Plain,
        _ => Tone::Busy,
    };
    let mut text = row.state.to_string();
    if let Some(under_way) = &row.operation {
        text += &format!(": {}", under_way.phase);
        if let Some(percent) = percent(under_way) {
            text += &format!(" {percent} %");
        }
    }
    Cell::new(text).toned(tone)
}

fn percent(under_way: &UnderWay) -> Option<u64> {
    let (done, total) = (under_way.bytes_done?, under_way.bytes_total?);
    Some(done.saturating_mul(100).checked_div(total)?.min(100))
}

fn blockers(row: &Row) -> Cell {
    if !row.blockers.is_empty() {
        return Cell::new(row.blockers.join(", ")).toned(Tone::Bad);
    }
    match row.kind {
        Some(kind) if row.state != State::Paused => Cell::new(kind.name()).toned(Tone::Bad),
        _ => Cell::new("-"),
    }
}

fn last_image(row: &Row) -> Option<String> {
    let seconds = row.last_image.as_ref()?.age_seconds?;
    Some(format!("{} ago", age(Duration::from_secs(seconds))))
}

fn predicted(predicted: Option<&Predicted>) -> Option<String> {
    predicted.map(Predicted::text)
}
