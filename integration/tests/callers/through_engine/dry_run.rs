//! `stasis checkpoint --dry-run`.

use anyhow::Result;
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::installed::StasisHost;

use super::object;
use crate::commands::run;

/// For podman's container "job", a counter that has answered 101.
pub(super) fn changes_nothing_and_names_what_is_in_the_way(stasis: &StasisHost) -> Result<()> {
    let dry_run = ["checkpoint", "job", "--dry-run"];
    let (code, answer) = object(stasis, &dry_run)?;
    assert_eq!(
        (code, &answer["checkpointable"]),
        (Some(0), &true.into()),
        "{answer}"
    );
    let id = answer["container"].as_str().unwrap_or_default();
    let command = json!(["podman", "container", "checkpoint", id]);
    assert_eq!(answer["command"], command);
    assert!(answer["gpu_bytes"].as_u64() >= Some(64 << 20), "{answer}");
    assert_eq!(answer["predicted_checkpoint"], Value::Null);
    assert!(answer["room"]["free_bytes"].as_u64() > Some(0), "{answer}");
    let notes = answer["notes"].to_string();
    assert_contains(&notes, &["podman packs", "gpu_contents.directory"]);
    let (code, stdout, stderr) = run(stasis, &dry_run)?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let command = format!("podman container checkpoint {id}");
    let words = ["job: a checkpoint would begin, with 64.0 MiB", &command];
    assert_contains(&stdout, &words);

    // Hooks are listed, and not run: this program does not exist.
    stasis.set(
        &stasis.low_level,
        "hooks.before_checkpoint = [\"/bin/nil\", \"now\"]\n",
    )?;
    let (code, answer) = object(stasis, &dry_run)?;
    let hooks = json!({
        "before_checkpoint": {"command": ["/bin/nil", "now"], "timeout_seconds": 30},
        "after_restore": null,
    });
    assert_eq!((code, &answer["hooks"]), (Some(0), &hooks));
    let (_, stdout, _) = run(stasis, &dry_run)?;
    assert_contains(
        &stdout,
        &["hook \"/bin/nil now\" would run in it, for up to 30 s"],
    );

    // A process that was started by exec ends with its container, and is in no image.
    stasis.set(&stasis.low_level, "preflight.exec = \"refuse\"\n")?;
    stasis.podman(&["exec", "-d", "job", "/bin/pause"])?;
    let (code, answer) = object(stasis, &dry_run)?;
    assert_eq!((code, &answer["kind"]), (Some(1), &"blocked".into()));
    assert_eq!(answer["blockers"][0]["kind"], "exec-session", "{answer}");
    let (code, stdout, _) = run(stasis, &dry_run)?;
    assert_eq!(code, Some(1));
    assert_contains(&stdout, &["exec-session", "would be refused [blocked]"]);
    let (code, answer) = object(stasis, &[&dry_run[..], &["-R"]].concat())?;
    assert_eq!((code, &answer["kind"]), (Some(0), &Value::Null), "{answer}");
    stasis.run(&["pkill", "-KILL", "-x", "pause"])?;
    stasis.set(&stasis.low_level, "")?;

    let (code, stdout, stderr) = run(stasis, &["checkpoint", "nobody", "--dry-run"])?;
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_contains(&stderr, &["[no-container]"]);
    // Nothing was done: the counter goes on, and no line is logged.
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    assert!(stasis.operation("checkpoint").is_err());
    assert_eq!(stasis.podman_status("job")?, "running");
    Ok(())
}
