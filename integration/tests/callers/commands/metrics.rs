//! `stasis metrics`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::metrics::Metrics;
use stasis_integration::container::contents::{DISK, ON_DISK};
use stasis_integration::host::installed::StasisHost;

use super::{COUNTERS, json, run};

const FILE: &str = "/root/metrics/stasis.prom";
const UUID: &str = "GPU-57415349-5300-4000-8000-000000000001";

/// The page has the figures that `stasis ps` and `stasis log` show.
pub(crate) fn all_is_counted(stasis: &StasisHost) -> Result<()> {
    let (code, page, stderr) = run(stasis, &["metrics"])?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let metrics = Metrics::parse(&page).with_context(|| page.clone())?;
    let version = env!("CARGO_PKG_VERSION");
    let info = format!("stasis_build_info{{version=\"{version}\"}}");
    assert_eq!(metrics.value(&info), Some(1.0), "{page}");

    let (_, lines) = json(stasis, &["log"])?;
    for operation in ["checkpoint", "suspend", "resume"] {
        for outcome in ["done", "unsupported"] {
            let is_it = |line: &&Value| {
                let kind = line["kind"].as_str().unwrap_or("done");
                line["operation"] == operation && kind == outcome
            };
            let logged = lines.iter().filter(is_it).count();
            let labels = [("operation_type", operation), ("outcome", outcome)];
            let counted = metrics.with("stasis_operations_total", &labels);
            assert_eq!(
                counted.unwrap_or(0.0),
                logged as f64,
                "{operation} {outcome}"
            );
        }
    }
    for name in ["duration_seconds", "locked_seconds", "size_bytes"] {
        let count = format!("stasis_operation_{name}_count");
        let of_checkpoints = metrics.with(&count, &[("operation_type", "checkpoint")]);
        assert!(of_checkpoints > Some(0.0), "{count}: {page}");
    }

    let (_, rows) = json(stasis, &["ps"])?;
    let running = metrics.with("stasis_containers", &[("state", "running")]);
    assert_eq!(running, Some(rows.len() as f64), "{page}");
    assert_eq!(
        metrics.with("stasis_containers", &[("state", "failed")]),
        Some(0.0)
    );
    for (name, _) in COUNTERS {
        let row = rows
            .iter()
            .find(|row| row["name"] == name || row["id"] == name);
        let row = row.with_context(|| name.to_owned())?;
        let id = row["id"].as_str().unwrap_or_default();
        let gpu = [
            ("container", name),
            ("id", id),
            ("gpu", "0"),
            ("UUID", UUID),
        ];
        let held = metrics.with("stasis_container_gpu_memory_bytes", &gpu);
        assert_eq!(held, row["gpus"][0]["memory_bytes"].as_f64(), "{page}");
        let would = metrics.with("stasis_container_checkpointable", &gpu[..2]);
        assert_eq!(would, Some(1.0), "{page}");
    }
    let left = metrics.with("stasis_leftovers", &[("what", "operation")]);
    assert!(left.is_some(), "{page}");
    Ok(())
}

pub(crate) fn they_are_written_to_a_file(stasis: &StasisHost) -> Result<()> {
    let host = &stasis.host;
    host.run(&["mkdir", "/root/metrics"])?;
    for _ in 0..2 {
        let (code, stdout, stderr) = run(stasis, &["metrics", "--textfile", FILE])?;
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
        Metrics::parse(&fs::read_to_string(host.path(FILE))?)?;
    }
    // The node exporter is not root.
    let mode = fs::metadata(host.path(FILE))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    assert_eq!(fs::read_dir(host.path("/root/metrics"))?.count(), 1);
    host.run(&["ln", "-s", "/root", "/root/link"])?;
    let (code, _, stderr) = run(stasis, &["metrics", "--textfile", "/root/link/stasis.prom"])?;
    assert_eq!(code, Some(2), "{stderr}");
    assert!(!host.path("/root/stasis.prom").exists());
    let nowhere = ["metrics", "--textfile", "/root/nowhere/stasis.prom"];
    let (code, _, stderr) = run(stasis, &nowhere)?;
    assert_eq!(code, Some(2));
    assert_contains(&stderr, &["cannot write /root/nowhere/stasis.prom"]);
    Ok(())
}

/// The board of Grafana and the alerts of Prometheus can be read, and each metric in them is one
/// that the page has.
pub(crate) fn board_and_alerts_ask_for_what_there_is(stasis: &StasisHost) -> Result<()> {
    let (_, page, _) = run(stasis, &["metrics"])?;
    let there: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let of_histogram = |name: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let mut bases = suffixes
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix));
        bases.any(|base| page.contains(&format!("# TYPE {base} histogram\n")))
    };
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/monitoring");
    let board: Value = serde_json::from_slice(&fs::read(files.join("grafana.json"))?)?;
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let mut python = Command::new("python3");
    let alerts = python
        .args(["-c", read])
        .arg(files.join("alerts.yml"))
        .output()?;
    let why = String::from_utf8_lossy(&alerts.stderr).into_owned();
    let alerts: Value = serde_json::from_slice(&alerts.stdout).context(why)?;
    let rules = alerts["groups"][0]["rules"]
        .as_array()
        .context("no rules")?;
    let panels = board["panels"].as_array().context("no panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array());
    let asked: Vec<&str> = rules
        .iter()
        .chain(targets.flatten())
        .filter_map(|one| one["expr"].as_str())
        .collect();
    ensure!(asked.len() > rules.len() && !rules.is_empty(), "{asked:?}");
    for expression in asked {
        let names = words(expression).filter(|word| word.starts_with("stasis_"));
        let names: Vec<&str> = names.collect();
        ensure!(!names.is_empty(), "{expression}");
        for name in names {
            ensure!(
                there.contains(name) || of_histogram(name),
                "no {name}: {page}"
            );
        }
    }
    Ok(())
}

fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
}

/// A link to itself cannot be read, like a file on a broken disk.
pub(crate) fn what_cannot_be_read_hides_nothing_else(stasis: &StasisHost) -> Result<()> {
    let host = &stasis.host;
    let store = format!("{DISK}/broken");
    let (store, totals) = (store.as_str(), "/var/log/stasis/operations.totals");
    host.run(&["mkdir", "-p", DISK])?;
    stasis.set(&stasis.low_level, ON_DISK)?;
    for broken in [store, totals] {
        host.run(&["ln", "-s", broken, broken])?;
    }
    let (code, page, stderr) = run(stasis, &["metrics"])?;
    host.run(&["rm", store, totals])?;
    stasis.set(&stasis.low_level, "")?;
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains(store), "{stderr}");
    let metrics = Metrics::parse(&page).with_context(|| page.clone())?;
    for (part, read) in [
        ("gpu-contents", 0.0),
        ("operations", 0.0),
        ("leftover-operations", 1.0),
    ] {
        let success = metrics.with("stasis_read_success", &[("part", part)]);
        assert_eq!(success, Some(read), "{page}");
    }
    let running = metrics.with("stasis_containers", &[("state", "running")]);
    assert_eq!(running, Some(COUNTERS.len() as f64), "{page}");
    let used = metrics.with("stasis_gpu_contents_used_bytes", &[]);
    assert!(used.is_some(), "{page}");
    assert!(!page.contains("stasis_operations_total{"), "{page}");
    Ok(())
}
