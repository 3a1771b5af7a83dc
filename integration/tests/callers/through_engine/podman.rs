//! Containers of podman.

use anyhow::Result;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::installed::StasisHost;

use super::{object, other_runtime, terminal};
use crate::commands::{json, run};

/// For a container "job", a counter that has answered 102.
pub(super) fn counter_is_checkpointed_by_its_name(stasis: &StasisHost) -> Result<()> {
    let (code, outcome) = object(stasis, &["checkpoint", "job", "--leave-running"])?;
    assert_eq!(code, Some(0), "{outcome}");
    assert_eq!(outcome["result"], "done");
    assert_eq!(outcome["engine"], "podman");
    let logged = stasis.operation("checkpoint")?;
    assert_eq!(outcome["image"], logged["image_path"]);
    assert!(outcome["bytes"].as_u64() > Some(0), "{outcome}");
    assert_eq!(stasis.podman_status("job")?, "running");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));

    terminal::progress_is_shown_also_in_a_narrow_window(stasis, "job", &[])?;
    terminal::ctrl_c_takes_a_checkpoint_back(stasis, ("job", 10000), &[])?;
    assert_eq!(stasis.podman_status("job")?, "running");
    let (code, stdout, stderr) = run(stasis, &["checkpoint", "job"])?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let words = ["podman container checkpoint ", "job: checkpointed in "];
    assert_contains(&stdout, &words);
    assert!(stdout.trim_end().ends_with("it has ended"), "{stdout}");
    assert_eq!(stasis.podman_status("job")?, "exited");
    assert_eq!(stasis.gpu_descriptors()?, 0);
    // podman knows of the checkpoint, as if it had been asked for it directly.
    let (code, answer) = object(stasis, &["restore", "job", "--dry-run"])?;
    assert_eq!((code, &answer["begins"]), (Some(0), &true.into()));
    assert_eq!(answer["engine"], "podman");
    assert_eq!(answer["predicted_restore"], serde_json::Value::Null);
    assert_eq!(stasis.podman_status("job")?, "exited");
    let (code, stdout, stderr) = run(stasis, &["restore", "job"])?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_contains(&stdout, &["podman container restore ", "job: restored in "]);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("106"));
    assert_eq!(stasis.podman_status("job")?, "running");
    what_runs_is_not_restored(stasis)?;
    let (_, rows) = json(stasis, &["ps", "job"])?;
    assert_eq!(rows[0]["predicted_restore"]["from"], 1, "{rows:?}");
    let (_, answer) = object(stasis, &["checkpoint", "job", "--dry-run"])?;
    assert_eq!(answer["predicted_checkpoint"]["from"], 4);

    stasis.inject("checkpoint job error:801 1")?;
    let (code, outcome) = object(stasis, &["checkpoint", "job"])?;
    assert_eq!((code, &outcome["result"]), (Some(1), &"failed".into()));
    assert_eq!(outcome["kind"], "unsupported", "{outcome}");
    assert_eq!(outcome["state"], "unharmed");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("107"));

    let archive = "/images/job.tar";
    let (code, outcome) = object(stasis, &["checkpoint", "job", "--image", archive])?;
    assert_eq!((code, &outcome["image"]), (Some(0), &archive.into()));
    assert!(stasis.host.path(archive).is_file());
    stasis.podman_remove("job")?;
    let (code, outcome) = object(stasis, &["restore", "job", "--image", archive])?;
    assert_eq!(code, Some(0), "{outcome}");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("108"));
    stasis.podman_remove("job")
}

fn what_runs_is_not_restored(stasis: &StasisHost) -> Result<()> {
    let (code, outcome) = object(stasis, &["restore", "job"])?;
    assert_eq!((code, &outcome["kind"]), (Some(1), &"engine".into()));
    let error = outcome["error"].as_str().unwrap_or_default();
    assert_contains(error, &["job runs, and a restore", "nothing was done"]);
    for (asked, kind, said) in [
        (
            &["nobody"][..],
            "no-container",
            &["podman: it says", "no such container", "--bundle"][..],
        ),
        (
            &["nobody", "--engine=podman"],
            "no-container",
            &["(podman: it says", "without --engine"],
        ),
        (
            &["job", "--engine=docker"],
            "no-container",
            &["(docker: it says", "without --engine"],
        ),
        (
            &["x", "--engine=podman", "--image=/nil"],
            "image-directory",
            &["/nil is no file"],
        ),
    ] {
        let (code, outcome) = object(stasis, &[&["restore"], asked].concat())?;
        assert_eq!(
            (code, &outcome["kind"]),
            (Some(1), &kind.into()),
            "{outcome}"
        );
        assert_contains(outcome["error"].as_str().unwrap_or_default(), said);
    }
    Ok(())
}

pub(super) fn one_of_another_runtime_is_refused(stasis: &StasisHost) -> Result<()> {
    let plain = ["--runtime", &stasis.low_level];
    stasis.podman_run(other_runtime::PLAIN.0, &plain, &other_runtime::COUNTER)?;
    let called = format!("/usr/bin/{}", stasis.low_level);
    other_runtime::is_refused_before_anything_is_done(stasis, &called)?;
    stasis.podman_remove(other_runtime::PLAIN.0)
}
