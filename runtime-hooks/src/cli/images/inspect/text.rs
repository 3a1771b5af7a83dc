//! Images for people.

use stasis_memory_store::PacksIn;

use super::Shown;
use super::report::Report;
use crate::cli::answer::amount::size;
use crate::cli::answer::name;
use crate::cli::answer::table::{Cell, Column, table};
use crate::cli::images::table::origin;

/// Where the rest is.
const OF_CRIU: &str = "CRIU's own files: crit and checkpointctl read them";

pub(super) fn of(shown: &[Shown], all: bool) -> String {
    let text = |shown: &Shown| match shown {
        Shown::Here(report) if all => [summary(report), more(report)].join("\n\n"),
        Shown::Here(report) => summary(report),
        Shown::Elsewhere(elsewhere) => titled(&elsewhere.lines()),
    };
    shown.iter().map(text).collect::<Vec<_>>().join("\n\n")
}

fn titled(lines: &[(&str, String)]) -> String {
    let line = |(title, fact): &(&str, String)| format!("{title:<12} {}", name(fact));
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn summary(report: &Report) -> String {
    let sizes = &report.sizes;
    let mut lines = vec![("image", report.image.display().to_string())];
    let engine = report.engine.map(|engine| engine.to_string());
    let group = report.group.as_ref().map(|names| names.join(", "));
    for (title, fact) in [
        ("container", &report.container),
        ("name", &report.name),
        ("engine", &engine),
        ("group", &group),
        ("made from", &report.container_image),
        ("created", &report.created),
        ("written by", &report.written_by),
        ("driver", &report.driver_version),
    ] {
        lines.extend(fact.clone().map(|fact| (title, fact)));
    }
    for gpu in &report.gpus {
        let (held, total) = (size(gpu.memory_bytes), size(gpu.total_bytes));
        let product = &gpu.product;
        lines.push((
            "GPU",
            format!("{} ({product}), {held} of {total}", gpu.uuid),
        ));
    }
    let processes = report.processes.len();
    lines.push(("processes", format!("{processes} with GPU state")));
    lines.push(("memory", size(sizes.process_bytes)));
    if sizes.gpu_bytes > 0 {
        lines.push(("GPU memory", size(sizes.gpu_bytes)));
    }
    if let Some(bytes) = sizes.bulk_bytes {
        let place = match sizes.packs_in {
            Some(PacksIn::Directory) => "apart from the image",
            _ => "in the image",
        };
        lines.push(("GPU contents", format!("{}, {place}", size(bytes))));
    }
    let file_bytes = size(sizes.file_bytes);
    lines.push(("files", format!("{}, {file_bytes}", sizes.files)));
    let places = report.origin.iter().flat_map(origin);
    lines.extend(places.map(|place| ("origin", place)));
    lines.extend(report.notes.iter().map(|note| ("note", note.clone())));
    lines.push(("more", OF_CRIU.to_owned()));
    titled(&lines)
}

fn more(report: &Report) -> String {
    let processes = report.processes.iter().map(|process| {
        let held = process
            .gpu_bytes()
            .values()
            .copied()
            .fold(0, u64::saturating_add);
        vec![
            Cell::new(process.pid.to_string()),
            Cell::new(size(held)),
            Cell::new(name(&process.name)),
        ]
    });
    let phases = report.phases.iter().map(|phase| {
        vec![
            Cell::new(name(&phase.name)),
            Cell::new(format!("{:.3}", phase.seconds)),
            Cell::or_none(phase.bytes.map(size)),
        ]
    });
    let files = report.files.iter().flatten().map(|file| {
        vec![
            Cell::new(name(&file.name)),
            Cell::new(size(file.bytes)),
            Cell::or_none(file.blake3.as_ref()),
        ]
    });
    [
        drawn(["PID", "GPU MEMORY", "NAME"], processes),
        drawn(["PHASE", "SECONDS", "MOVED"], phases),
        drawn(["FILE", "SIZE", "BLAKE3"], files),
    ]
    .join("\n\n")
}

fn drawn(titles: [&'static str; 3], rows: impl Iterator<Item = Vec<Cell>>) -> String {
    let columns = titles.map(|title| Column { title, spare: 0 });
    table(&columns, &rows.collect::<Vec<_>>())
}
