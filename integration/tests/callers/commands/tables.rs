//! Tables with a container of podman, whose ids and paths are long, on terminals of several widths.

use anyhow::{Context, Result};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::run;
use crate::terminal::visible;

const CONTAINER: &str = "podman-job";
const NARROW: [usize; 2] = [80, 120];

on_hosts!(they_fit_the_terminal: sid_v2);

/// Containers have their names, and paths are whole in a pipe.
fn they_fit_the_terminal(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    stasis.podman_load()?;
    stasis.podman_run(CONTAINER, &[], &["/bin/counter", "10001"])?;
    stasis.ask_until_up(10001)?;
    let checkpoint = ["podman", "container", "checkpoint", "--leave-running"];
    stasis.run(&[&checkpoint[..], &[CONTAINER]].concat())?;
    let logged = stasis.operation("checkpoint")?;
    let path = logged["image_path"].as_str().context("no path")?;
    let id = logged["container"].as_str().context("no id")?;
    let log = format!("log --container {id} -n 1");
    let images = format!("images {path}");
    let ps = format!("ps {CONTAINER}");
    for columns in NARROW {
        for command in [&ps, &images, &log] {
            let table = on_terminal(stasis, columns, command)?;
            let wide = table.lines().find(|line| line.chars().count() > columns);
            assert_eq!(wide, None, "{table}");
        }
    }
    for command in [&images, &log] {
        let (_, table, _) = run(stasis, &command.split(' ').collect::<Vec<_>>())?;
        assert!(table.contains(path), "{table}");
        assert!(table.contains(&format!(" {CONTAINER} ")), "{table}");
        assert!(table.matches(id).count() == 1, "in the path alone: {table}");
    }
    Ok(())
}

fn on_terminal(stasis: &StasisHost, columns: usize, command: &str) -> Result<String> {
    let command = format!("stty cols {columns}; {PROGRAM} {command}");
    let script = ["script", "-qec", &command, "/dev/null"];
    let shown = stasis.run_for_text(&script)?;
    let lines = shown.lines().map(|line| visible(line.trim_end()) + "\n");
    Ok(lines.collect())
}
