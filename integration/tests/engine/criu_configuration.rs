//! A container's annotation gives CRIU no configuration file, which could name programs that run as
//! root on the host.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::host::{HostKind, Suite};
use stasis_integration::on_hosts;

const CONFIGURATION: &str = "/root/criu.conf";
const SCRIPT: &str = "/root/script";
const TRACE: &str = "/root/trace";

on_hosts!(an_annotation_gives_criu_no_configuration: trixie_v2, sid_v2);

fn an_annotation_gives_criu_no_configuration(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let script = format!("#!/bin/sh\necho $CRTOOLS_SCRIPT_ACTION >>{TRACE}\n");
    stasis.script(SCRIPT, &script)?;
    let configuration = format!("action-script {SCRIPT}\n");
    stasis.write(CONFIGURATION, &configuration)?;
    // crun 1.21 does not know the annotation, 1.28 does.
    let flavors = match kind.suite {
        Suite::Trixie => &["runc"][..],
        Suite::Sid => &["runc", "crun"][..],
    };
    for low_level in flavors {
        for devices in [Devices::Gpu, Devices::None] {
            each(stasis, low_level, devices).with_context(|| format!("{low_level} {devices:?}"))?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Devices {
    Gpu,
    None,
}

fn each(stasis: &StasisHost, low_level: &str, devices: Devices) -> Result<()> {
    stasis.set(low_level, "")?;
    let job = Bundle::make(stasis, &format!("{low_level}-{devices:?}"), &["/bin/pause"])?;
    job.change(|spec| {
        spec["linux"]["maskedPaths"] = json!([]);
        spec["linux"]["readonlyPaths"] = json!([]);
        if devices == Devices::None {
            spec["linux"]["devices"] = json!([]);
        }
    })?;
    stasis.run(&["mkdir", "-p", &format!("{}/work", job.directory())])?;
    let plain = job.spec()?;
    job.change(annotate)?;
    job.run()?;
    job.checkpoint_fails("refused", &[])?;
    refused(stasis, &job, "checkpoint")?;
    let check = stasis
        .command(PROGRAM)
        .args(["check", "--json", "--root", ROOT, &job.id])
        .output()?;
    let report: Value = serde_json::from_slice(&check.stdout)?;
    ensure!(report["kind"] == "criu-configuration", "{report}");
    ensure!(
        !stasis.path(TRACE).exists(),
        "a script of a container's ran at a checkpoint"
    );
    job.delete()?;

    job.change(|spec| *spec = plain)?;
    job.run()?;
    job.checkpoint("image", &[])?;
    job.change(annotate)?;
    job.restore_fails("image")?;
    refused(stasis, &job, "restore")?;
    ensure!(
        !stasis.path(TRACE).exists(),
        "a script of a container's ran at a restore"
    );

    // If it is allowed, the file takes effect: otherwise the cases above would test nothing.
    stasis.set(low_level, "criu.configuration = \"allow\"\n")?;
    job.restore("image")?;
    ensure!(stasis.path(TRACE).exists(), "CRIU has read no such file");
    job.delete()?;
    stasis.run(&["rm", TRACE])?;
    Ok(())
}

fn annotate(spec: &mut Value) {
    spec["annotations"] = json!({ "org.criu.config": CONFIGURATION });
}

fn refused(stasis: &StasisHost, job: &Bundle<'_>, verb: &str) -> Result<()> {
    let failure = job.failure()?.context("it reports nothing")?;
    let kind = failure.kind.map(|kind| kind.name());
    ensure!(kind == Some("criu-configuration"), "{failure:?}");
    // The log names the requester.
    let line = stasis.last_operation()?;
    let (caller, operation) = (&line["caller"], &line["operation"]);
    let argv: Vec<_> = caller["argv"].as_array().into_iter().flatten().collect();
    ensure!(
        operation == verb && line["kind"] == "criu-configuration",
        "{line}"
    );
    ensure!(
        argv.iter().any(|it| **it == *verb) && argv.iter().any(|it| **it == job.id),
        "{line}"
    );
    ensure!(caller["uid"] == 0 && caller["cgroup"].is_string(), "{line}");
    Ok(())
}
