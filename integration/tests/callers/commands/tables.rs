//! What tables show of a container of podman, whose ids and paths are long, on terminals of several
//! widths.

use anyhow::{Context, Result};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::golden::masked;
use super::run;
use crate::terminal::visible;

const CONTAINER: &str = "podman-job";
const NARROW: [(usize, &str); 2] = [
    (80, include_str!("golden/podman-80.txt")),
    (120, include_str!("golden/podman-120.txt")),
];

on_hosts!(they_fit_the_terminal: sid_v2);

/// A pipe gets all that was left out.
fn they_fit_the_terminal(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    stasis.podman_load()?;
    stasis.podman_run(CONTAINER, &[], &["/bin/counter", "10001"])?;
    stasis.ask_until_up(10001)?;
    let checkpoint = ["podman", "container", "checkpoint", "--leave-running"];
    stasis.host.run(&[&checkpoint[..], &[CONTAINER]].concat())?;
    let logged = stasis.operation("checkpoint")?;
    let path = logged["image_path"].as_str().context("no path")?;
    let id = logged["container"].as_str().context("no id")?;
    let log = format!("log --container {id} -n 1");
    let images = format!("images {path}");
    let ps = format!("ps {CONTAINER}");
    let mut other = String::new();
    for (columns, expected) in NARROW {
        let mut shown = String::new();
        for command in [&ps, &images, &log] {
            let table = on_terminal(stasis, columns, command)?;
            let wide = table.lines().find(|line| line.chars().count() > columns);
            assert_eq!((wide, table.lines().count()), (None, 2), "{table}");
            shown += &table;
        }
        if masked(&without_ids(&shown)) != masked(expected) {
            other += &format!("==> {columns} columns\n{shown}");
        }
    }
    assert!(other.is_empty(), "it is not what golden/ has:\n{other}");
    for command in [&images, &log] {
        let (_, table, _) = run(stasis, &command.split(' ').collect::<Vec<_>>())?;
        assert!(table.contains(path), "{table}");
        assert!(table.matches(id).count() == 2, "{table}");
    }
    Ok(())
}

fn on_terminal(stasis: &StasisHost, columns: usize, command: &str) -> Result<String> {
    let command = format!("stty cols {columns}; {PROGRAM} {command}");
    let script = ["script", "-qec", &command, "/dev/null"];
    let shown = stasis.host.run_for_text(&script)?;
    let lines = shown.lines().map(|line| visible(line.trim_end()) + "\n");
    Ok(lines.collect())
}

/// The same, whichever container it was.
fn without_ids(text: &str) -> String {
    const SHORT_ID: usize = 12;
    let mut masked = String::new();
    let parts = text.split_inclusive(|c: char| !c.is_ascii_hexdigit());
    for part in parts {
        let end = part.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
        let is_id = end.len() == SHORT_ID;
        masked += &part.replacen(end, if is_id { "ID" } else { end }, usize::from(is_id));
    }
    masked
}
