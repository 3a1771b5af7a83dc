//! Containers of Kubernetes. No test host has crictl, of which Debian has no package: stasis calls
//! a script, which has the test make the CRI call that crictl would make.

use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::cri::{ContainerConfig, Cri};
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::object;
use crate::commands::{json, run};

const CRICTL: &str = "/usr/local/bin/crictl";
const ASKED: &str = "/run/crictl.asked";
const ANSWER: &str = "/run/crictl.answer";
const ARCHIVE: &str = "/images/job.tar";

pub(super) fn counter_is_checkpointed_by_its_name(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let pod = cri.pod("jobs")?;
    let counter = ContainerConfig::new("job", &["/bin/counter", "10000"]).with_gpu("job");
    let container = pod.run(&counter)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    let (_, rows) = json(stasis, &["ps"])?;
    let row = rows.first().context("no container")?;
    let name = row["name"].as_str().context("no name")?;
    ensure!(
        name.ends_with("/jobs/job") && row["engine"] == "cri",
        "{row}"
    );

    what_kubernetes_cannot_do_is_refused(stasis, name)?;
    let of_pod = ["checkpoint", "--pod", "jobs", "-R", "--into", "/images/pod"];
    let (code, answer) = object(stasis, &of_pod)?;
    assert_eq!(
        (code, &answer["complete"]),
        (Some(0), &true.into()),
        "{answer}"
    );
    assert_eq!(answer["containers"][0]["name"], name);
    let none = [
        "checkpoint",
        "--pod",
        "others/jobs",
        "--into",
        "/images/none",
    ];
    let (code, stdout, stderr) = run(stasis, &none)?;
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_contains(&stderr, &["a pod others/jobs", "[no-container]"]);
    a_script_in_the_place_of_crictl(stasis)?;
    let whole = ["checkpoint", name, "-R", "--image", ARCHIVE];
    let outcome = while_crictl(stasis, &whole, || {
        Ok(format!(
            "{:?}",
            cri.checkpoint(&container.id, ARCHIVE).err()
        ))
    })?;
    assert_eq!(
        (&outcome["result"], &outcome["image"]),
        (&"done".into(), &ARCHIVE.into())
    );
    ensure!(outcome["seconds"].as_f64() > Some(0.0), "{outcome}");
    let asked = std::fs::read_to_string(stasis.path(ASKED))?;
    let expected = format!(
        "--timeout=24h checkpoint --export={ARCHIVE} {}",
        container.id
    );
    assert_eq!(asked.trim(), expected);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    ensure!(stasis.path(ARCHIVE).is_file(), "no archive");

    // Kubernetes restores a container as another one, in another pod.
    cri.stop(&container.id, 10)?;
    let (code, outcome) = object(stasis, &["restore", name])?;
    assert_eq!((code, &outcome["kind"]), (Some(2), &"no-container".into()));
    pod.remove()?;
    stasis.nothing_left_of(&[&container.id])
}

fn what_kubernetes_cannot_do_is_refused(stasis: &StasisHost, name: &str) -> Result<()> {
    let without_image = ["checkpoint", name, "-R"];
    let ended = ["checkpoint", name, "--image", ARCHIVE];
    let without_crictl = ["checkpoint", name, "-R", "--image", ARCHIVE];
    for (arguments, kind, says) in [
        (&without_image[..], "image-directory", "--image=FILE"),
        (&ended, "engine", "--leave-running"),
        (&without_crictl, "engine", "crictl"),
    ] {
        let (code, outcome) = object(stasis, arguments)?;
        assert_eq!(
            (code, &outcome["kind"]),
            (Some(1), &kind.into()),
            "{outcome}"
        );
        assert_eq!(outcome["state"], "unharmed");
        let error = outcome["error"].as_str().unwrap_or_default();
        assert_contains(error, &[says]);
    }
    Ok(())
}

/// Installs a script that reports its arguments, and ends as the test orders.
fn a_script_in_the_place_of_crictl(stasis: &StasisHost) -> Result<()> {
    let script = format!(
        "#!/bin/sh\necho \"$@\" >{ASKED}.new && mv {ASKED}.new {ASKED}\nread -r said <{ANSWER}\n\
         [ \"$said\" = None ] || {{ echo \"$said\" >&2; exit 1; }}\n"
    );
    stasis.script(CRICTL, &script)?;
    stasis.run(&["mkfifo", ANSWER])?;
    Ok(())
}

/// Runs `stasis`, and does crictl's work when `stasis` calls it.
fn while_crictl(
    stasis: &StasisHost,
    arguments: &[&str],
    call: impl FnOnce() -> Result<String>,
) -> Result<Value> {
    let child: Child = stasis
        .command(PROGRAM)
        .args(arguments)
        .arg("--json")
        .stdout(Stdio::piped())
        .spawn()?;
    wait_until_clear(|| {
        let asked = stasis.path(ASKED).exists();
        Ok((!asked).then(|| "crictl is not called".to_owned()))
    })?;
    let said = call()?;
    std::fs::write(stasis.path(ANSWER), format!("{said}\n"))?;
    let output = child.wait_with_output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}
