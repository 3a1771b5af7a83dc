//! Bars in groups, as SVG.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::cell::{Contents, SYSTEMS};
use super::table::{DUMP, Quantity, RESTORE, Row, median};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 40.0;
const PLOT_WIDTH: f64 = 600.0;
const PLOT_HEIGHT: f64 = 270.0;
/// One for each system; those of CRIU are grey.
const COLORS: [&str; 9] = [
    "#888888", "#bbbbbb", "#a6cee3", "#1f78b4", "#b2df8a", "#33a02c", "#444444", "#fdbf6f",
    "#ff7f00",
];

/// A group of bars, one for each system; what was not measured leaves a gap.
struct Group {
    name: String,
    values: Vec<Option<f64>>,
}

/// Writes the plots: by size, and by contents.
pub(crate) fn write(directory: &Path, rows: &[Row]) -> Result<()> {
    let by_size = |quantity: &Quantity| {
        let rows = rows.iter().filter(|row| row.contents == Contents::Random);
        let named = rows.map(|row| group(format!("{} GiB", row.gib), row, quantity));
        named.collect::<Vec<_>>()
    };
    let by_contents = |quantity: &Quantity| {
        let rows = rows.iter().filter(|row| row.gib == super::SIZE);
        let named = rows.map(|row| group(row.contents.name().to_owned(), row, quantity));
        named.collect::<Vec<_>>()
    };
    let plots = [
        (
            "dump",
            "Checkpoint of incompressible memory, s",
            by_size(&DUMP),
        ),
        (
            "restore",
            "Restore of incompressible memory, s",
            by_size(&RESTORE),
        ),
        (
            "contents",
            "Checkpoint of 4 GiB by contents, s",
            by_contents(&DUMP),
        ),
    ];
    for (name, title, groups) in plots {
        let path = directory.join(format!("bench-{name}.svg"));
        std::fs::write(&path, draw(title, &groups)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn group(name: String, row: &Row, quantity: &Quantity) -> Group {
    let values = (0..SYSTEMS.len()).map(|index| median(row, index, quantity));
    Group {
        name,
        values: values.collect(),
    }
}

fn draw(title: &str, groups: &[Group]) -> Result<String> {
    let values = groups
        .iter()
        .flat_map(|group| group.values.iter().flatten());
    let highest = values.fold(0.1_f64, |highest, value| highest.max(*value)) * 1.05;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    axis(&mut svg, highest)?;
    let room = PLOT_WIDTH / groups.len() as f64;
    for (number, group) in groups.iter().enumerate() {
        let left = LEFT + room * (number as f64 + 0.08);
        bars(&mut svg, group, left, room * 0.84, highest)?;
    }
    for (number, (system, color)) in SYSTEMS.iter().zip(COLORS).enumerate() {
        let (x, y) = (LEFT + PLOT_WIDTH + 30.0, TOP + 22.0 * number as f64);
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{}\">{system}</text>",
            x + 18.0,
            y + 11.0
        )?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Lines at round values.
fn axis(svg: &mut String, highest: f64) -> Result<()> {
    let power = 10_f64.powf(highest.log10().floor());
    let steps = [0.1, 0.2, 0.5, 1.0].map(|step| step * power);
    let step = steps
        .into_iter()
        .find(|step| highest / step <= 8.0)
        .unwrap_or(power);
    let mut value = 0.0;
    while value <= highest {
        let y = height_of(value, highest);
        writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.*}</text>",
            LEFT + PLOT_WIDTH,
            LEFT - 6.0,
            y + 4.0,
            if step < 1.0 { 2 } else { 0 }
        )?;
        value += step;
    }
    Ok(())
}

fn height_of(value: f64, highest: f64) -> f64 {
    TOP + PLOT_HEIGHT * (1.0 - value / highest)
}

fn bars(svg: &mut String, group: &Group, left: f64, width: f64, highest: f64) -> Result<()> {
    let each = width / group.values.len() as f64;
    for (number, (value, color)) in group.values.iter().zip(COLORS).enumerate() {
        let Some(value) = value else { continue };
        let (x, y) = (left + each * number as f64, height_of(*value, highest));
        writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{color}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"8\">{value:.2}</text>",
            each * 0.9,
            TOP + PLOT_HEIGHT - y,
            x + each * 0.45,
            y - 3.0
        )?;
    }
    writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        left + width / 2.0,
        TOP + PLOT_HEIGHT + 18.0,
        group.name
    )?;
    Ok(())
}
