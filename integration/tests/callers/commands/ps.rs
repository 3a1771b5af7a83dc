//! `stasis ps`.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::answer::listed;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::{cells, run};
use crate::terminal::visible;

const HEADER: [&str; 10] = [
    "CONTAINER",
    "ENGINE",
    "GPU",
    "UUID",
    "MEMORY",
    "STATE",
    "BLOCKERS",
    "LAST IMAGE",
    "CHECKPOINT",
    "RESTORE",
];
/// The fields that are empty before the first operation.
const NONE_YET: [&str; 5] = [
    "last_image",
    "predicted_checkpoint",
    "predicted_restore",
    "operation",
    "kind",
];
/// The stand-in's GPU.
const UUID: &str = "GPU-57415349-5300-4000-8000-000000000001";

pub(crate) fn without_containers_that_is_told(stasis: &StasisHost) -> Result<()> {
    let (code, stdout, stderr) = run(stasis, &["ps"])?;
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert_eq!(stderr, "stasis: no container uses a GPU\n");
    assert_eq!(super::json(stasis, &["ps"])?, (Some(0), Vec::new()));
    let (code, stdout, stderr) = run(stasis, &["images"])?;
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert_contains(&stderr, &["no image directories are known"]);
    for_others_nothing_looks_as_if_it_were_not_there(stasis)
}

fn for_others_nothing_looks_as_if_it_were_not_there(stasis: &StasisHost) -> Result<()> {
    let mut other = stasis.command("setpriv");
    let other = other.args(["--reuid=65534", "--clear-groups", PROGRAM, "check", "job"]);
    let output = other.output()?;
    assert_eq!(output.status.code(), Some(2));
    assert_contains(&String::from_utf8(output.stderr)?, &["stasis needs root"]);
    Ok(())
}

fn check_knows(stasis: &StasisHost, name: &str) -> Result<()> {
    let (code, stdout, _) = run(stasis, &["check", name])?;
    assert_eq!(code, Some(0), "{stdout}");
    assert!(
        stdout.starts_with(&format!("container {name} (/")),
        "{stdout}"
    );
    Ok(())
}

pub(crate) fn those_that_use_a_gpu_are_shown_by_name(stasis: &StasisHost) -> Result<()> {
    let (code, rows) = super::json(stasis, &["ps"])?;
    assert_eq!(code, Some(0));
    let (_, stdout, stderr) = run(stasis, &["ps"])?;
    assert_eq!(stderr, "");
    let table = cells(&stdout);
    assert_eq!(table[0], HEADER);
    assert_eq!(table.len(), 4, "{stdout}");
    for (name, engine) in [
        ("podman-job", "podman"),
        ("ctr-job", "containerd"),
        ("docker-job", "docker"),
    ] {
        let line = [
            name,
            engine,
            "0",
            &UUID[..12],
            MEMORY,
            "running",
            "-",
            "-",
            "-",
            "-",
        ];
        assert!(table.iter().any(|row| *row == line), "{name}: {stdout}");
        let row = named(&rows, name)?;
        assert_eq!(row["engine"], engine);
        assert_eq!(row["state"], "running");
        assert_eq!(row["gpus"][0]["index"], 0);
        assert_eq!(row["gpus"][0]["uuid"], UUID);
        assert_eq!(row["checkpointable"], true);
        assert_eq!(row["blockers"], json!([]));
        assert_eq!(row["processes"][0]["cuda"], "RUNNING");
        for none in NONE_YET {
            assert_eq!(row[none], Value::Null, "{none}");
        }
        let (code, one) = super::json(stasis, &["ps", name])?;
        assert_eq!((code, one.len()), (Some(0), 1));
        assert_eq!(one[0]["id"], row["id"]);
        // Other commands know the name, too.
        check_knows(stasis, name)?;
    }
    let (code, rows) = super::json(stasis, &["ps", "idle", "ctr-job"])?;
    assert_eq!((code, rows.len()), (Some(1), 1));
    let (code, stdout, stderr) = run(stasis, &["ps", "nobody"])?;
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_contains(
        &stderr,
        &[
            "no running container has the id or name nobody",
            "[no-container]",
        ],
    );
    for wrong in [["ps", "--watch=0"], ["ps", "--wide"]] {
        assert_eq!(run(stasis, &wrong)?.0, Some(2), "{wrong:?}");
    }
    Ok(())
}

/// The GPU memory of a counter under the stand-in driver.
const MEMORY: &str = "64.0 MiB";

pub(crate) fn a_checkpoint_is_shown_and_foretells_the_next(stasis: &StasisHost) -> Result<()> {
    stasis.hold_gpu_checkpoint("ctr-job")?;
    let held = std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| stasis.ctr_checkpoint("ctr-job", "example.com/job:1"));
        stasis.until_driver_is_called()?;
        let held = Instant::now();
        let shown = wait_until_clear(|| {
            let (_, stdout, _) = run(stasis, &["ps", "ctr-job"])?;
            let is_told = stdout.contains("checkpointing: gpu checkpoint");
            Ok((!is_told).then_some(stdout))
        });
        let held = held.elapsed();
        stasis.let_gpu_checkpoint_go()?;
        checkpoint
            .join()
            .ok()
            .context("the checkpoint panicked")??;
        shown.map(|()| held.as_secs_f64())
    })?;
    stasis.inject("")?;
    let (_, rows) = super::json(stasis, &["ps"])?;
    let row = named(&rows, "ctr-job")?;
    let logged = stasis.operation("checkpoint")?;
    assert_eq!(row["last_image"]["created"], logged["time"]);
    assert_eq!(row["last_image"]["path"], logged["image_path"]);
    assert!(
        row["last_image"]["age_seconds"].as_u64() < Some(600),
        "{row}"
    );
    let predicted = &row["predicted_checkpoint"];
    assert_eq!(predicted["from"], 1);
    assert!(predicted["seconds"].as_f64() > Some(held), "{predicted}");
    let (_, stdout, _) = run(stasis, &["ps"])?;
    let table = cells(&stdout);
    let line = table.iter().find(|row| row[0] == "ctr-job");
    let line = line.context("no line")?;
    assert!(line[7].ends_with(" ago"), "{stdout}");
    let seconds = format!("{:.1} s", predicted["seconds"].as_f64().unwrap_or_default());
    assert!(line[8].starts_with(&seconds), "{stdout}");
    assert_eq!(named(&rows, "podman-job")?["last_image"], Value::Null);
    Ok(())
}

/// Waiting for the driver once for each container would take longer than the time limit here.
pub(crate) fn who_does_not_answer_delays_nobody(stasis: &StasisHost) -> Result<()> {
    stasis.set("runc", "deadlines.lock_ms = 90000\n")?;
    stasis.inject("get-state ctr-job hang\nget-state docker-job hang")?;
    let mut ps = stasis.command("timeout");
    let output = ps.args(["80", PROGRAM, "ps", "--json"]).output()?;
    stasis.inject("")?;
    stasis.set("runc", "")?;
    let rows = listed(&output.stdout)?;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(rows.len(), 3, "{rows:?}");
    for name in ["ctr-job", "docker-job"] {
        let row = named(&rows, name)?;
        assert_eq!(
            (&row["state"], &row["kind"]),
            (&json!("unknown"), &json!("hung"))
        );
        assert_contains(&row["error"].to_string(), &["no answer within"]);
    }
    assert_eq!(named(&rows, "podman-job")?["state"], "running");
    Ok(())
}

pub(crate) fn a_terminal_gets_colours_and_no_line_too_many(stasis: &StasisHost) -> Result<()> {
    for columns in [200, 80, 30] {
        let command = format!("stty cols {columns}; {PROGRAM} ps");
        let script = ["script", "-qec", &command, "/dev/null"];
        let text = stasis.run_for_text(&script)?;
        let green = "\u{1b}[38;5;10mrunning";
        assert!(text.contains(green), "{text:?}");
        let mut lines = text.lines().map(|line| visible(line.trim_end()));
        assert!(lines.all(|line| line.chars().count() <= columns), "{text}");
    }
    Ok(())
}

pub(super) fn named<'r>(rows: &'r [Value], name: &str) -> Result<&'r Value> {
    let is_named = |row: &&Value| row["name"] == name || row["id"] == name;
    let found = rows.iter().find(is_named);
    found.with_context(|| format!("no {name} in {rows:?}"))
}
