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
    // Its name is known as long as podman has it.
    let (code, stdout, stderr) = run(stasis, &["log", "--container", "job"])?;
    assert_eq!(code, Some(0), "{stderr}");
    let names = stdout
        .lines()
        .filter(|line| line.contains("  job  "))
        .count();
    assert!(names > 1, "{stdout}");
    assert_eq!(run(stasis, &["log", "--container", "nobody"])?.0, Some(2));
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
    a_failure_is_told_once_and_by_name(stasis)?;
    what_podman_would_refuse_has_a_way_out(stasis)?;

    let archive = "/images/job.tar";
    let (code, outcome) = object(stasis, &["checkpoint", "job", "--image", archive])?;
    assert_eq!((code, &outcome["image"]), (Some(0), &archive.into()));
    assert!(stasis.path(archive).is_file());
    stasis.podman_remove("job")?;
    let (code, outcome) = object(stasis, &["restore", "job", "--image", archive])?;
    assert_eq!(code, Some(0), "{outcome}");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("108"));
    stasis.podman_remove("job")
}

fn a_failure_is_told_once_and_by_name(stasis: &StasisHost) -> Result<()> {
    stasis.inject("checkpoint job error:801 1")?;
    let (code, _, stderr) = run(stasis, &["checkpoint", "job"])?;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.starts_with("stasis: job: gpu checkpoint of process "),
        "{stderr}"
    );
    assert_eq!(stderr.matches("unsupported").count(), 1, "{stderr}");
    let is_hex = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(!stderr.split([' ', ':', ',', ';']).any(is_hex), "{stderr}");
    Ok(())
}

fn what_podman_would_refuse_has_a_way_out(stasis: &StasisHost) -> Result<()> {
    stasis.podman(&["pause", "job"])?;
    let (code, _, stderr) = run(stasis, &["checkpoint", "job"])?;
    assert_eq!(code, Some(1), "{stderr}");
    assert_contains(&stderr, &["podman unpause job", "[container-paused]"]);
    stasis.podman(&["unpause", "job"])?;
    let criu = "/usr/sbin/criu";
    let aside = "/usr/sbin/criu-aside";
    stasis.run(&["mv", criu, aside])?;
    let (code, _, stderr) = run(stasis, &["checkpoint", "job"])?;
    stasis.run(&["mv", aside, criu])?;
    assert_eq!(code, Some(1), "{stderr}");
    assert_contains(
        &stderr,
        &["job: criu is not installed; install CRIU", "[criu]"],
    );
    Ok(())
}

fn what_runs_is_not_restored(stasis: &StasisHost) -> Result<()> {
    let (code, outcome) = object(stasis, &["restore", "job"])?;
    assert_eq!((code, &outcome["kind"]), (Some(1), &"engine".into()));
    let error = outcome["error"].as_str().unwrap_or_default();
    assert_contains(error, &["job runs; a restore", "nothing was done"]);
    for (asked, kind, said) in [
        (
            &["nobody"][..],
            "no-container",
            &["no engine has a container nobody to restore", "--bundle"][..],
        ),
        (
            &["nobody", "--engine=podman"],
            "no-container",
            &[
                "no engine has a container nobody to restore",
                "try without --engine",
            ],
        ),
        (
            &["job", "--engine=docker"],
            "no-container",
            &[
                "no engine has a container job to restore",
                "try without --engine",
            ],
        ),
        (
            &["x", "--engine=podman", "--image=/nil"],
            "image-directory",
            &["/nil is no file"],
        ),
    ] {
        let (code, outcome) = object(stasis, &[&["restore"], asked].concat())?;
        let exit = if kind == "no-container" { 2 } else { 1 };
        assert_eq!(
            (code, &outcome["kind"]),
            (Some(exit), &kind.into()),
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
