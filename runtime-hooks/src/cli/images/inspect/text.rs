//! Images for people.

use stasis_memory_store::PacksIn;

use super::process::Process;
use super::report::Report;
use super::{Arguments, Shown};
use crate::cli::answer::amount::size;
use crate::cli::answer::name;
use crate::cli::answer::table::{Cell, Column, table};

/// A tree is drawn no deeper, so that lines end.
const DEEPEST: usize = 16;

pub(super) fn of(shown: &[Shown], asked: &Arguments) -> String {
    let text = |shown: &Shown| match shown {
        Shown::Here(report) => one(report, asked),
        Shown::Elsewhere(elsewhere) => titled(&elsewhere.lines()),
    };
    shown.iter().map(text).collect::<Vec<_>>().join("\n\n")
}

fn titled(lines: &[(&str, String)]) -> String {
    let line = |(title, fact): &(&str, String)| format!("{title:<12} {}", name(fact));
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn one(report: &Report, asked: &Arguments) -> String {
    let mut text = summary(report);
    for (is_asked, section) in [
        (asked.ps_tree, tree as fn(&Report) -> String),
        (asked.files, files),
        (asked.sockets, sockets),
        (asked.mounts, mounts),
        (asked.stats, statistics),
    ] {
        if is_asked || asked.all {
            text += "\n\n";
            text += &section(report);
        }
    }
    text
}

fn summary(report: &Report) -> String {
    let sizes = &report.sizes;
    let cuda = report
        .processes
        .iter()
        .filter(|process| process.cuda)
        .count();
    let open = |process: &Process| process.of_criu.files.len();
    let open: usize = report.processes.iter().map(open).sum();
    let mut lines = vec![("image", report.image.display().to_string())];
    let engine = report.engine.map(|engine| engine.to_string());
    for (title, fact) in [
        ("container", &report.container),
        ("name", &report.name),
        ("engine", &engine),
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
    lines.push((
        "processes",
        format!(
            "{}, {cuda} with GPU state; {open} open files, {} mounts",
            report.processes.len(),
            report.mounts.len()
        ),
    ));
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
    lines.extend(report.notes.iter().map(|note| ("note", note.clone())));
    titled(&lines)
}

fn tree(report: &Report) -> String {
    let row = |process: &Process| {
        let of_criu = &process.of_criu;
        let indent = "  ".repeat(process.depth.min(DEEPEST));
        let cuda = process.cuda.then(|| size(process.gpu_bytes));
        vec![
            Cell::new(of_criu.pid.to_string()),
            Cell::new(of_criu.threads.to_string()),
            Cell::or_none(cuda),
            Cell::new(format!("{indent}{}", one_line(&of_criu.name))),
            Cell::new(one_line(&of_criu.command_line.join(" "))),
        ]
    };
    let columns = columns(
        ["PID", "THREADS", "GPU MEMORY", "NAME", "COMMAND"],
        [0, 3, 2, 1, 4],
    );
    drawn(&columns, report.processes.iter().map(row))
}

fn files(report: &Report) -> String {
    let row = |process: &Process| {
        let pid = process.of_criu.pid;
        let files = process.of_criu.files.iter();
        files
            .map(|open| {
                let path = open.file.path.as_ref().map(|path| one_line(path));
                let socket = || open.file.socket.as_ref()?.local.as_deref().map(one_line);
                vec![
                    Cell::new(pid.to_string()),
                    Cell::new(open.fd.to_string()),
                    Cell::new(open.file.kind),
                    Cell::or_none(path.or_else(socket)),
                ]
            })
            .collect::<Vec<_>>()
    };
    let columns = columns(["PID", "FD", "KIND", "PATH"], [0, 2, 3, 1]);
    drawn(&columns, report.processes.iter().flat_map(row))
}

fn sockets(report: &Report) -> String {
    let row = |process: &Process| {
        let pid = process.of_criu.pid;
        let open = process.of_criu.files.iter();
        let sockets = open.filter_map(|open| Some((open.fd, open.file.socket.as_ref()?)));
        sockets
            .map(|(fd, socket)| {
                vec![
                    Cell::new(pid.to_string()),
                    Cell::new(fd.to_string()),
                    Cell::new(socket.protocol),
                    Cell::new(socket.state),
                    Cell::or_none(socket.local.as_deref().map(one_line)),
                    Cell::or_none(socket.remote.as_deref().map(one_line)),
                ]
            })
            .collect::<Vec<_>>()
    };
    let titles = ["PID", "FD", "PROTOCOL", "STATE", "LOCAL", "REMOTE"];
    let columns = columns(titles, [0, 5, 1, 2, 3, 4]);
    drawn(&columns, report.processes.iter().flat_map(row))
}

fn mounts(report: &Report) -> String {
    let rows = report.mounts.iter().map(|mount| {
        let texts = [
            &mount.mountpoint,
            &mount.file_system,
            &mount.source,
            &mount.root,
        ];
        let mut row: Vec<Cell> = texts.map(|text| Cell::new(one_line(text))).into();
        row.push(Cell::or_none(mount.external.then_some("external")));
        row
    });
    let titles = ["MOUNT", "FILE SYSTEM", "SOURCE", "ROOT", "FROM"];
    drawn(&columns(titles, [0, 1, 3, 4, 2]), rows)
}

fn statistics(report: &Report) -> String {
    let mut rows: Vec<Vec<Cell>> = report
        .phases
        .iter()
        .map(|phase| {
            vec![
                Cell::new(one_line(&phase.name)),
                Cell::new(format!("{:.3}", phase.seconds)),
                Cell::or_none(phase.bytes.map(size)),
            ]
        })
        .collect();
    if let Some(criu) = &report.criu {
        for (title, seconds) in [
            ("criu: freezing", criu.freezing_seconds),
            ("criu: frozen", criu.frozen_seconds),
            ("criu: memory dump", criu.memory_dump_seconds),
            ("criu: memory write", criu.memory_write_seconds),
        ] {
            let (title, seconds) = (Cell::new(title), Cell::new(format!("{seconds:.3}")));
            rows.push(vec![title, seconds, Cell::or_none(None::<&str>)]);
        }
    }
    drawn(
        &columns(["PHASE", "SECONDS", "MOVED"], [0, 1, 2]),
        rows.into_iter(),
    )
}

fn columns<const N: usize>(titles: [&'static str; N], spare: [u8; N]) -> [Column; N] {
    let mut at = 0;
    titles.map(|title| {
        let column = Column {
            title,
            spare: spare[at],
        };
        at += 1;
        column
    })
}

fn drawn(columns: &[Column], rows: impl Iterator<Item = Vec<Cell>>) -> String {
    table(columns, &rows.collect::<Vec<_>>())
}

/// What a process has named may have several lines.
fn one_line(text: &str) -> String {
    name(&text)
}
