//! Containers of Docker.

use anyhow::Result;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::StasisHost;

use super::{object, other_runtime, terminal};
use crate::commands::{json, run};

pub(super) fn counter_is_checkpointed_by_its_name(stasis: &StasisHost) -> Result<()> {
    stasis.docker_run("job", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    terminal::ctrl_c_takes_a_checkpoint_back(stasis, ("job", 10000), &[])?;
    let (code, outcome) = object(stasis, &["checkpoint", "job", "-R", "--image", "kept"])?;
    assert_eq!((code, &outcome["image"]), (Some(0), &"kept".into()));
    assert_eq!(stasis.docker_status("job")?, "running");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));
    let (_, images) = json(stasis, &["images"])?;
    let kept = images.iter().filter_map(|image| image["image"].as_str());
    let kept = kept.filter(|path| path.ends_with("/checkpoints/kept"));
    assert_eq!(kept.count(), 1, "{images:?}");
    // Docker has a checkpoint of that name already.
    let (code, outcome) = object(stasis, &["checkpoint", "job", "--image", "kept"])?;
    assert_eq!((code, &outcome["kind"]), (Some(1), &"engine".into()));
    assert_eq!(outcome["state"], "unharmed");
    let error = outcome["error"].as_str().unwrap_or_default();
    assert_contains(
        error,
        &[
            "docker checkpoint create ",
            "already exists",
            "uses another runtime",
        ],
    );
    let (code, stdout, stderr) = run(stasis, &["checkpoint", "job"])?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_contains(&stdout, &["docker checkpoint create ", ", into stasis-"]);
    stasis.docker_wait_for("job", "exited")?;
    restored(stasis, &[])?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("105"));
    stasis.run(&["docker", "kill", "job"])?;
    stasis.docker_wait_for("job", "exited")?;
    restored(stasis, &["--image", "kept"])?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));
    // A group of one: the container is ended behind Docker's back, and Docker notices.
    let group = [
        "checkpoint",
        "--group",
        "job",
        "--into",
        "/images/of-docker",
    ];
    let (code, answer) = object(stasis, &group)?;
    assert_eq!(
        (code, &answer["complete"]),
        (Some(0), &true.into()),
        "{answer}"
    );
    stasis.docker_wait_for("job", "exited")?;
    stasis.docker_remove("job")
}

/// Retries as long as Docker refuses the restore because of entries that its containerd has not
/// collected yet ([`StasisHost::docker_restore`]).
fn restored(stasis: &StasisHost, image: &[&str]) -> Result<()> {
    let restore = [&["restore", "job"], image].concat();
    wait_until_clear(|| {
        let (code, outcome) = object(stasis, &restore)?;
        Ok((code != Some(0)).then(|| outcome.to_string()))
    })
}

pub(super) fn one_of_another_runtime_is_refused(stasis: &StasisHost) -> Result<()> {
    let plain = ["--runtime", "runc"];
    stasis.docker_run(other_runtime::PLAIN.0, &plain, &other_runtime::COUNTER)?;
    other_runtime::is_refused_before_anything_is_done(stasis, "runc")?;
    stasis.docker_remove(other_runtime::PLAIN.0)
}
