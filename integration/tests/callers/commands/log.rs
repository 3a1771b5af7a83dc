//! `stasis log`.

use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::installed::{OPERATIONS_LOG, StasisHost};

use super::{cells, json, run};

const HEADER: [&str; 8] = [
    "WHEN",
    "OPERATION",
    "CONTAINER",
    "SECONDS",
    "MOVED",
    "OUTCOME",
    "CALLER",
    "IMAGE",
];

pub(crate) fn operations_are_listed_and_drawn(stasis: &StasisHost) -> Result<()> {
    let of_ctr = ["log", "--container", "ctr-job"];
    let (code, lines) = json(stasis, &of_ctr)?;
    assert_eq!(code, Some(0));
    let operations: Vec<_> = lines.iter().map(|line| &line["operation"]).collect();
    // containerd has paused it for its checkpoint, and resumed it.
    let expected = [
        "checkpoint",
        "resume",
        "suspend",
        "resume",
        "suspend",
        "resume",
    ];
    assert_eq!(operations, expected);
    let (_, stdout, stderr) = run(stasis, &of_ctr)?;
    assert_eq!(stderr, "");
    let table = cells(&stdout);
    assert_eq!(table[0], HEADER);
    assert_eq!(table.len(), lines.len() + 1, "{stdout}");
    for (row, line) in table[1..].iter().zip(&lines) {
        assert_eq!([&line["time"], &line["operation"]], [row[0], row[1]]);
        let container = line["name"].as_str().or(line["container"].as_str());
        assert_eq!(container, Some(row[2]), "people know it by its name");
        assert_eq!(row[5], "done");
        // A caller that has entered the host has no pid there, so its name is unknown.
        let caller = line["caller"]["name"].as_str().unwrap_or("-");
        assert_eq!(caller, row[6]);
    }
    let checkpoint = &table[1];
    assert_eq!(lines[0]["image_path"], checkpoint[7]);
    let (_, last) = json(stasis, &["log", "--container", "ctr-job", "-n", "1"])?;
    assert_eq!(last, lines[lines.len() - 1..]);
    // Docker alone knows the container by this name.
    let (_, docker) = json(stasis, &["log", "--container", "docker-job"])?;
    assert_eq!(docker.len(), 2, "{docker:?}");

    let drawn = ["log", "--container", "ctr-job", "--timeline"];
    let (code, stdout, _) = run(stasis, &drawn)?;
    assert_eq!(code, Some(0));
    let first = stdout.split("\n\n").next().context("nothing")?;
    let time = lines[0]["time"].as_str().unwrap_or_default();
    let heading = format!("{time} checkpoint of ctr-job: ");
    assert!(first.starts_with(&heading), "{first}");
    let phases = lines[0]["phases"].as_array().context("no phases")?;
    assert_eq!(first.lines().count(), phases.len() + 1, "{first}");
    for (bar, phase) in first.lines().skip(1).zip(phases) {
        let name = phase["name"].as_str().unwrap_or_default();
        assert!(
            bar.trim_start().starts_with(name) && bar.contains('#'),
            "{bar}"
        );
    }
    Ok(())
}

pub(crate) fn some_are_chosen_and_what_chooses_none_is_refused(stasis: &StasisHost) -> Result<()> {
    let (code, stdout, _) = run(stasis, &["log", "--failed", "--container", "podman-job"])?;
    assert_eq!(code, Some(0));
    assert_contains(&stdout, &["unsupported", " suspend: ", "(801)"]);
    assert!(!stdout.contains("done"), "{stdout}");
    let (_, recent) = json(stasis, &["log", "--since", "1h"])?;
    let (_, all) = json(stasis, &["log"])?;
    assert_eq!(recent, all);
    let (code, none) = json(stasis, &["log", "--since", "2999-01-01T00:00:00Z"])?;
    assert_eq!((code, none.len()), (Some(0), 0));
    for wrong in [["log", "--since", "soon"], ["log", "-n", "-1"]] {
        let (code, _, stderr) = run(stasis, &wrong)?;
        assert_eq!(code, Some(2), "{stderr}");
    }
    Ok(())
}

/// A truncated line, and one with control sequences for a terminal.
pub(crate) fn what_is_no_line_is_left_out(stasis: &StasisHost) -> Result<()> {
    let (_, before) = json(stasis, &["log"])?;
    let path = stasis.path(OPERATIONS_LOG);
    let mut log = OpenOptions::new().append(true).open(path)?;
    log.write_all(b"{\"time\": \"cut off\n\xff\n[]\n")?;
    let odd = "{\"time\": \"now\", \"operation\": \"restore\", \"container\": \"odd\\u001b[2J\"}\n";
    log.write_all(odd.as_bytes())?;
    let (code, after) = json(stasis, &["log"])?;
    assert_eq!((code, after.len()), (Some(0), before.len() + 1));
    let (_, stdout, _) = run(stasis, &["log", "-n", "1"])?;
    assert_contains(&stdout, &["odd\\u{1b}[2J"]);
    let (_, stdout, _) = run(stasis, &["log", "-n", "1", "--timeline"])?;
    assert!(!stdout.contains('\u{1b}'), "{stdout:?}");
    Ok(())
}
