//! Tables for people: as wide as their contents, and no wider than the terminal. Where that is too
//! narrow, long ids and paths are shortened, and columns left out; no cell is wrapped. What is no
//! terminal gets everything.

mod fit;

use std::fmt;
use std::path::Path;

use comfy_table::{Color, ContentArrangement, Table, presets};

use super::name;

/// No fewer columns than these are shown, however narrow the terminal is.
const LEAST: usize = 3;
/// The space behind a column.
const GAP: u16 = 2;
/// A column is not made narrower than this before others are left out: the end of a path with the
/// beginning of an id in it.
const ENOUGH: usize = 36;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Of those that do not fit, the column with the highest number goes first.
    pub(crate) spare: u8,
}

/// The contents of a cell.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    /// The same where there is little room.
    brief: Option<String>,
    is_path: bool,
    tone: Tone,
}

/// How a cell looks on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// All is well.
    Good,
    /// Something is under way, or waits.
    Busy,
    /// Somebody has to look.
    Bad,
}

impl Cell {
    /// Text that others may have named: it does not act on a terminal.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        let lines: Vec<String> = text.as_ref().lines().map(|line| name(&line)).collect();
        Self {
            text: lines.join("\n"),
            brief: None,
            is_path: false,
            tone: Tone::Plain,
        }
    }

    /// The text, or "-" if there is none.
    pub(crate) fn or_none(text: Option<impl AsRef<str>>) -> Self {
        text.map_or_else(Self::none, Self::new)
    }

    /// What is not known, or not there.
    pub(crate) fn none() -> Self {
        Self::new("-")
    }

    /// A path, whose end is the last that goes.
    pub(crate) fn path(path: &Path) -> Self {
        let whole = Self::new(name(&path.display()));
        Self {
            brief: Some(fit::with_short_ids(&whole.text)),
            is_path: true,
            ..whole
        }
    }

    /// The id of a container, short as engines show it where there is little room.
    pub(crate) fn id(id: &str) -> Self {
        let whole = Self::new(name(&id));
        Self {
            brief: Some(fit::short_id(&whole.text).to_owned()),
            ..whole
        }
    }

    /// Where there is little room, this text in its place.
    pub(crate) fn or_brief(self, brief: Option<String>) -> Self {
        Self { brief, ..self }
    }

    pub(crate) fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// Its text where there is little room.
    pub(crate) fn brief(&self) -> &str {
        self.brief.as_ref().unwrap_or(&self.text)
    }

    /// Its text in so many columns.
    fn within(&self, width: usize) -> String {
        let shorten = match self.is_path {
            true => fit::path,
            false => fit::text,
        };
        let lines: Vec<String> = self
            .brief()
            .lines()
            .map(|line| shorten(line, width))
            .collect();
        lines.join("\n")
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Draws a table; without a terminal it is as wide as its contents, and without colours.
pub(crate) fn table(columns: &[Column], rows: &[Vec<Cell>]) -> String {
    let width = Table::new().width();
    fitted(columns, rows, width, |_| ())
}

fn fitted(
    columns: &[Column],
    rows: &[Vec<Cell>],
    width: Option<u16>,
    prepare: impl Fn(&mut Table),
) -> String {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let texts = loop {
        let (texts, fits) = within(columns, rows, &shown, width.map(usize::from));
        if fits || shown.len() <= LEAST {
            break texts;
        }
        let spare = shown.iter().copied().max_by_key(|at| columns[*at].spare);
        shown.retain(|at| Some(*at) != spare);
    };
    let mut table = drawn(rows, &shown, &texts);
    prepare(&mut table);
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The texts of the columns that are shown, their titles first, and whether they fit.
fn within(
    columns: &[Column],
    rows: &[Vec<Cell>],
    shown: &[usize],
    width: Option<usize>,
) -> (Vec<Vec<String>>, bool) {
    let whole = texts(columns, rows, shown, |cell, _| cell.text.clone());
    let gaps = usize::from(GAP) * (shown.len() - 1);
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(gaps));
    let fits = |widths: &[usize]| widths.iter().sum::<usize>() <= room;
    if fits(&widths(&whole)) {
        return (whole, true);
    }
    let brief = texts(columns, rows, shown, |cell, _| cell.brief().to_owned());
    let least = if shown.len() <= LEAST { 1 } else { ENOUGH };
    let widths = fit::narrowed(widths(&brief), room, least);
    let short = texts(columns, rows, shown, |cell, at| cell.within(widths[at]));
    (short, fits(&widths))
}

/// Each line of the table, as the text of a cell in a column is.
fn texts(
    columns: &[Column],
    rows: &[Vec<Cell>],
    shown: &[usize],
    text: impl Fn(&Cell, usize) -> String,
) -> Vec<Vec<String>> {
    let titles: Vec<Cell> = columns
        .iter()
        .map(|column| Cell::new(column.title))
        .collect();
    let line = |cells: &Vec<Cell>| {
        let cells = shown
            .iter()
            .enumerate()
            .map(|(at, column)| text(&cells[*column], at));
        cells.collect()
    };
    [&titles].into_iter().chain(rows).map(line).collect()
}

fn widths(texts: &[Vec<String>]) -> Vec<usize> {
    let columns = texts.first().map_or(0, Vec::len);
    let width = |at: usize| {
        texts
            .iter()
            .map(|line: &Vec<String>| fit::columns(&line[at]))
            .max()
    };
    (0..columns)
        .map(|at| width(at).unwrap_or_default())
        .collect()
}

fn drawn(rows: &[Vec<Cell>], shown: &[usize], texts: &[Vec<String>]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if let Some((titles, lines)) = texts.split_first() {
        table.set_header(titles);
        for (row, line) in rows.iter().zip(lines) {
            let cells = shown.iter().zip(line);
            table.add_row(cells.map(|(at, text)| cell(text, row[*at].tone)));
        }
    }
    // The last one ends with the terminal's line.
    for (at, column) in table.column_iter_mut().enumerate() {
        let is_last = at + 1 == shown.len();
        column.set_padding((0, if is_last { 0 } else { GAP }));
    }
    table
}

fn cell(text: &str, tone: Tone) -> comfy_table::Cell {
    let drawn = comfy_table::Cell::new(text);
    match tone {
        Tone::Plain => drawn,
        Tone::Good => drawn.fg(Color::Green),
        Tone::Busy => drawn.fg(Color::Yellow),
        Tone::Bad => drawn.fg(Color::Red),
    }
}

#[cfg(test)]
mod tests;
