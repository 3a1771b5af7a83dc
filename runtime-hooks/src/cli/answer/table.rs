//! Tables for people: as wide as their contents, and no wider than the terminal.

use std::fmt;

use comfy_table::{Color, ContentArrangement, Table, presets};

use super::name;

/// No fewer columns than these are shown, however narrow the terminal is.
const LEAST: usize = 3;
/// The space behind a column.
const GAP: u16 = 2;

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
            tone: Tone::Plain,
        }
    }

    /// The text, or "-" if there is none.
    pub(crate) fn or_none(text: Option<impl AsRef<str>>) -> Self {
        text.map_or_else(|| Self::new("-"), Self::new)
    }

    pub(crate) fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
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
    loop {
        let mut table = drawn(columns, rows, &shown);
        prepare(&mut table);
        let gaps = usize::from(GAP) * shown.len();
        let wanted: usize = table
            .column_max_content_widths()
            .iter()
            .map(|width| usize::from(*width))
            .sum();
        let Some(width) = width.filter(|width| wanted + gaps > usize::from(*width)) else {
            return trimmed(&table);
        };
        if shown.len() <= LEAST {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width);
            return trimmed(&table);
        }
        let spare = shown.iter().copied().max_by_key(|at| columns[*at].spare);
        shown.retain(|at| Some(*at) != spare);
    }
}

fn drawn(columns: &[Column], rows: &[Vec<Cell>], shown: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(shown.iter().map(|at| columns[*at].title));
    for row in rows {
        table.add_row(shown.iter().map(|at| cell(&row[*at])));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    table
}

fn cell(cell: &Cell) -> comfy_table::Cell {
    let drawn = comfy_table::Cell::new(&cell.text);
    match cell.tone {
        Tone::Plain => drawn,
        Tone::Good => drawn.fg(Color::Green),
        Tone::Busy => drawn.fg(Color::Yellow),
        Tone::Bad => drawn.fg(Color::Red),
    }
}

fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column {
            title: "NAME",
            spare: 0,
        },
        Column {
            title: "STATE",
            spare: 1,
        },
        Column {
            title: "IMAGE",
            spare: 3,
        },
        Column {
            title: "MEMORY",
            spare: 2,
        },
    ];

    fn at(width: Option<u16>) -> String {
        let texts = ["a-long-name", "running", "/images/of/a/job", "12 GiB"];
        let row = texts.map(|text| Cell::new(text).toned(Tone::Good)).to_vec();
        fitted(&COLUMNS, &[row], width, |table| {
            table.force_no_tty();
        })
    }

    #[test]
    fn what_does_not_fit_goes_and_what_is_left_is_wrapped() {
        let whole = "NAME         STATE    IMAGE             MEMORY\n\
                     a-long-name  running  /images/of/a/job  12 GiB";
        assert_eq!(at(None), whole);
        assert_eq!(at(Some(200)), whole);
        let narrow = "NAME         STATE    MEMORY\n\
                      a-long-name  running  12 GiB";
        assert_eq!(at(Some(40)), narrow);
        for line in at(Some(24)).lines() {
            assert!(line.len() <= 24, "{line}");
        }
    }

    #[test]
    fn no_cell_acts_on_a_terminal() {
        let row = vec![Cell::new("a\u{1b}[2Jb"); 4];
        let text = fitted(&COLUMNS, &[row], None, |table| {
            table.force_no_tty();
        });
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
