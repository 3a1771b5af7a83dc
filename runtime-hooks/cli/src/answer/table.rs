//! Tables for people. A terminal gets short ids, colours, cells that are wrapped to its width, and
//! no more columns than it has room for; a file or pipe gets everything.

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::name;

/// The space behind a column.
const GAP: u16 = 2;
/// Hexadecimal digits of an engine's id,
const ID: usize = 64;
/// and digits that engines show.
const SHORT_ID: usize = 12;

/// The longest word that is not split.
const WORD: usize = 12;

/// A cell's colour on a terminal: all is well, something is under way, a person has to look.
pub(crate) const GOOD: Color = Color::Green;
pub(crate) const BUSY: Color = Color::Yellow;
pub(crate) const BAD: Color = Color::Red;

/// Makes a cell of text that others may have chosen: it neither ends a line nor acts on a terminal.
pub(crate) fn cell(text: impl AsRef<str>) -> Cell {
    Cell::new(name(&text.as_ref()))
}

/// Makes a cell of the text, or of "-" if there is none.
pub(crate) fn or_none(text: Option<impl AsRef<str>>) -> Cell {
    text.map_or_else(|| Cell::new("-"), cell)
}

/// Makes a cell of a container's id, on a terminal as engines show it.
pub(crate) fn id(id: &str) -> Cell {
    let is_long = id.len() == ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_long && Table::new().is_tty() {
        true => cell(&id[..SHORT_ID]),
        false => cell(id),
    }
}

/// Draws a table: its columns by their titles, each with a number. On a terminal that is too narrow
/// the columns with the highest numbers are left out first.
pub(crate) fn table(columns: &[(&str, u8)], rows: Vec<Vec<Cell>>) -> String {
    drawn(columns, rows, Table::new().width())
}

fn drawn(columns: &[(&str, u8)], rows: Vec<Vec<Cell>>, width: Option<u16>) -> String {
    let least: Vec<u16> = (0..columns.len())
        .map(|at| least(columns[at].0, &rows, at) + GAP)
        .collect();
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let room = width.map_or(u16::MAX, |width| width.saturating_add(GAP));
    while shown.len() > 1 && shown.iter().map(|at| least[*at]).sum::<u16>() > room {
        let spare = shown.iter().copied().max_by_key(|at| columns[*at].1);
        shown.retain(|at| Some(*at) != spare);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(match width {
        Some(_) => ContentArrangement::Dynamic,
        None => ContentArrangement::Disabled,
    });
    if let Some(width) = width {
        table.set_width(width);
    }
    table.set_header(columns.iter().map(|(title, _)| *title));
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        // The last column ends with the terminal's line.
        let gap = if shown.last() == Some(&at) { 0 } else { GAP };
        column.set_padding((0, gap));
        column.set_constraint(match shown.contains(&at) {
            true => ColumnConstraint::LowerBoundary(Width::Fixed(least[at] - GAP + gap)),
            false => ColumnConstraint::Hidden,
        });
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// Returns the least width of a column: no short word in it is split.
fn least(title: &str, rows: &[Vec<Cell>], at: usize) -> u16 {
    let texts = rows.iter().map(|row| row[at].content());
    let texts: Vec<String> = texts.chain([title.to_owned()]).collect();
    let words = texts.iter().flat_map(|text| text.split_whitespace());
    let longest = words.map(|word| word.chars().count()).max();
    u16::try_from(longest.unwrap_or_default().min(WORD)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_contents_and_no_wider_than_the_terminal() {
        let columns = [("NAME", 0), ("SIZE", 2), ("STATE", 1), ("IMAGE", 3)];
        let at = |width| {
            let row = ["a-long-name", "12.0 GiB", "running", "/images/of/a/job"].map(cell);
            drawn(&columns, vec![row.to_vec()], width)
        };
        let whole = "NAME         SIZE      STATE    IMAGE\n\
                     a-long-name  12.0 GiB  running  /images/of/a/job";
        assert_eq!(at(None), whole);
        assert_eq!(at(Some(200)), whole);
        for (columns, titles) in [
            (46, &["NAME", "SIZE", "STATE", "IMAGE"][..]),
            (30, &["NAME", "SIZE", "STATE"]),
            (20, &["NAME", "STATE"]),
            (5, &["NAME"]),
        ] {
            let text = at(Some(columns));
            let first = text.lines().next().unwrap();
            assert_eq!(first.split_whitespace().collect::<Vec<_>>(), titles);
            let is_wide = |line: &str| line.len() > usize::from(columns).max(11);
            assert!(!text.lines().any(is_wide), "{text}");
        }
        assert!(at(Some(20)).contains("a-long-name  running"));
    }

    #[test]
    fn no_cell_acts_on_a_terminal() {
        let text = drawn(&[("NAME", 0)], vec![vec![cell("a\u{1b}[2Jb")]], None);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
