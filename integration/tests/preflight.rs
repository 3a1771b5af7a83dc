//! What no checkpoint or restore survives is refused before anything is changed, with its reason and a way
//! out, unless the administrator allows it; `stasis check` says so without a checkpoint.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{Lab, PROGRAM};
use stasis_integration::message::says;

/// Where `Bundle` keeps its containers.
const ROOT: &str = "/run/bundles";

#[test]
fn on_hybrid_cgroups() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?)
}

#[test]
fn on_cgroups_v2() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::V2, "runc")?)
}

fn all_cases(lab: &Lab) -> Result<()> {
    let _containerd = lab.containerd()?;
    held_files_are_refused(lab)?;
    several_blockers_are_told_together(lab)?;
    io_uring_is_refused(lab)?;
    a_plain_neighbour_with_an_nvidia_device_is_refused(lab)?;
    managed_memory_is_refused(lab)?;
    nccl_ranks_are_refused_unless_they_share_nothing(lab)?;
    mig_is_refused(lab)?;
    a_frozen_container_is_refused_and_stays_frozen(lab)?;
    a_check_says_what_is_in_the_way_or_that_nothing_is(lab)
}

/// A container that runs this in a shell, up at its port with its first answer.
fn start<'l>(lab: &'l Lab, id: &str, script: &str, port: u16) -> Result<(Bundle<'l>, String)> {
    let bundle = Bundle::make(lab, id, &["/bin/sh", "-c", script])?;
    bundle.run()?;
    let answer = lab.ask_until_up(port)?;
    Ok((bundle, answer))
}

/// A checkpoint is refused with these words, nothing is left of the try, and the workload counts on.
fn refused(lab: &Lab, bundle: &Bundle<'_>, port: u16, parts: &[&str]) -> Result<()> {
    let before = lab.ask(port)?.context("the workload is silent")?;
    let said = bundle.checkpoint_fails("refused", &[])?;
    says(
        &said,
        &["refused", "nothing was changed", "preflight.allow"],
    );
    says(&said, parts);
    ensure!(!bundle.image_path("refused").exists(), "an image directory");
    let records = ["find", "/run/stasis/containers", "-type", "f"];
    let records = lab.host.run_for_text(&records).unwrap_or_default();
    ensure!(records.is_empty(), "left: {records}");
    let after = lab.ask(port)?.context("the workload is silent")?;
    if let (Ok(before), Ok(after)) = (before.parse::<u32>(), after.parse::<u32>()) {
        assert_eq!(after, before + 1);
    }
    Ok(())
}

/// Runs `stasis check` with options; its exit code and what it wrote.
fn check(lab: &Lab, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = lab.command(PROGRAM);
    let output = command.arg("check").args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

fn held_files_are_refused(lab: &Lab) -> Result<()> {
    let held = |open: &str| format!("mkdir -p /dev/infiniband; {open}; exec /bin/counter 10100");
    for (id, open, parts) in [
        (
            "gdr",
            ": >/dev/gdrdrv; exec 9</dev/gdrdrv",
            ["gdrdrv: ", "descriptor 9 is \"/dev/gdrdrv\""],
        ),
        (
            "rdma",
            ": >/dev/infiniband/uverbs0; exec 8</dev/infiniband/uverbs0",
            ["rdma: ", "descriptor 8 is \"/dev/infiniband/uverbs0\""],
        ),
        (
            "mps",
            "mkdir /tmp/nvidia-mps; : >/tmp/nvidia-mps/log; exec 7</tmp/nvidia-mps/log",
            ["mps: ", "descriptor 7 is \"/tmp/nvidia-mps/log\""],
        ),
    ] {
        let (bundle, _) = start(lab, id, &held(open), 10100)?;
        refused(lab, &bundle, 10100, &parts)?;
        bundle.delete()?;
    }
    // What PyTorch has open on any GPU is no evidence of MIG.
    let caps = "mkdir -p /dev/nvidia-caps; : >/dev/nvidia-caps/nvidia-cap1; \
                exec 9</dev/nvidia-caps/nvidia-cap1; exec /bin/counter 10100";
    let (bundle, _) = start(lab, "caps", caps, 10100)?;
    let (code, said, _) = check(lab, &["--root", ROOT, "caps"])?;
    assert_eq!(code, Some(0), "{said}");
    bundle.delete()
}

fn several_blockers_are_told_together(lab: &Lab) -> Result<()> {
    let script = "mkdir -p /dev/infiniband; : >/dev/infiniband/uverbs0; : >/dev/gdrdrv; \
                  exec 8</dev/infiniband/uverbs0 9</dev/gdrdrv; exec /bin/counter 10101";
    let (bundle, _) = start(lab, "both", script, 10101)?;
    let both = ["gdrdrv: ", "rdma: ", "allow = [\"gdrdrv\", \"rdma\"]"];
    refused(lab, &bundle, 10101, &both)?;
    lab.set("runc", "preflight.allow = [\"rdma\"]\n")?;
    refused(lab, &bundle, 10101, &["allow = [\"gdrdrv\"]"])?;
    // Files by these names do CRIU no harm: allowed, it succeeds, and the log says what was let through.
    lab.set("runc", "preflight.allow = [\"rdma\", \"gdrdrv\"]\n")?;
    bundle.checkpoint("allowed", &["--leave-running"])?;
    let notes = lab.operation("checkpoint")?["notes"].to_string();
    says(
        &notes,
        &["allowed gdrdrv: process", "allowed rdma: process"],
    );
    lab.set("runc", "preflight.allow = [\"nccl\"]\n")?;
    let said = bundle.checkpoint_fails("wrong", &[])?;
    says(&said, &["stasis.toml:", "nccl-p2p"]);
    lab.set("runc", "")?;
    bundle.delete()
}

fn io_uring_is_refused(lab: &Lab) -> Result<()> {
    let probe = Bundle::make(lab, "probe", &["/bin/ring", "/bin/pause"])?;
    probe.run()?;
    std::thread::sleep(std::time::Duration::from_millis(200));
    let has_rings = probe.status()? == "running";
    probe.delete()?;
    if !has_rings {
        eprintln!("this kernel has no io_uring: not tested");
        return Ok(());
    }
    // Not only of CUDA processes: CRIU dumps all.
    let neighbour = "/bin/ring /bin/pause & exec /bin/counter 10102";
    let own = "exec /bin/ring /bin/counter 10102";
    for (id, script, name) in [
        ("ring-1", neighbour, "(pause)"),
        ("ring-2", own, "(counter)"),
    ] {
        let (bundle, _) = start(lab, id, script, 10102)?;
        let parts = ["io-uring: ", "anon_inode:[io_uring]", name, "USE_LIBUV=0"];
        refused(lab, &bundle, 10102, &parts)?;
        bundle.delete()?;
    }
    Ok(())
}

fn a_plain_neighbour_with_an_nvidia_device_is_refused(lab: &Lab) -> Result<()> {
    let script = "(exec 9</dev/nvidiactl; exec /bin/pause) & exec /bin/counter 10103";
    let (bundle, _) = start(lab, "monitor", script, 10103)?;
    let parts = [
        "nvidia-device: ",
        "(pause)",
        "descriptor 9 is \"/dev/nvidiactl\"",
    ];
    refused(lab, &bundle, 10103, &parts)?;
    bundle.delete()
}

fn managed_memory_is_refused(lab: &Lab) -> Result<()> {
    let script = "exec /bin/memcheck 16 10104 managed";
    let (bundle, answer) = start(lab, "uvm", script, 10104)?;
    assert_eq!(answer, "ok 0");
    refused(
        lab,
        &bundle,
        10104,
        &["managed-memory: ", "/dev/nvidia-uvm"],
    )?;
    assert_eq!(lab.ask(10104)?.as_deref(), Some("ok 3"));
    bundle.delete()
}

/// The script of two ranks, with these variables, that pass for ranks of NCCL.
fn ranks(variables: &str) -> String {
    format!("{variables} exec /bin/ranks 10105 2 nccl=/bin/pause")
}

fn nccl_ranks_are_refused_unless_they_share_nothing(lab: &Lab) -> Result<()> {
    let p2p = "NCCL_P2P_DISABLE=1";
    for (id, variables, missing) in [
        ("p2p-1", "", p2p),
        (
            "p2p-2",
            p2p,
            "NCCL_CUMEM_ENABLE=0 or NCCL_CUMEM_HOST_ENABLE=0",
        ),
        ("p2p-3", "NCCL_CUMEM_ENABLE=0", p2p),
    ] {
        let (bundle, _) = start(lab, id, &ranks(variables), 10105)?;
        let missing = format!("was not started with {missing}");
        let parts = [
            "nccl-p2p: ",
            "pt_nccl_watchdg",
            &missing,
            "NCCL_NVLS_ENABLE=0",
        ];
        refused(lab, &bundle, 10105, &parts)?;
        bundle.delete()?;
    }
    let in_file = format!(
        "echo {p2p} >/etc/nccl.conf; {}",
        ranks("NCCL_CUMEM_ENABLE=0")
    );
    let apart = ranks(&format!("{p2p} NCCL_CUMEM_ENABLE=0"));
    let alone = "exec /bin/ranks 10105 1 nccl=/bin/pause".to_owned();
    for (id, script) in [("apart-1", in_file), ("apart-2", apart), ("apart-3", alone)] {
        let (bundle, _) = start(lab, id, &script, 10105)?;
        let (code, said, _) = check(lab, &["--root", ROOT, id])?;
        assert_eq!(code, Some(0), "{id}: {said}");
        bundle.checkpoint("apart", &[])?;
        bundle.restore("apart")?;
        says(&lab.ask_until_up(10105)?, &["ok "]);
        bundle.delete()?;
    }
    Ok(())
}

fn mig_is_refused(lab: &Lab) -> Result<()> {
    if stasis_integration::native::has_gpu() {
        return Ok(());
    }
    let (bundle, _) = start(lab, "mig", "exec /bin/counter 10106", 10106)?;
    lab.order("mig 0")?;
    let said = bundle.checkpoint_fails("mig", &[])?;
    lab.order("")?;
    says(&said, &["mig: ", "is in MIG mode", "nothing was changed"]);
    assert_eq!(lab.ask(10106)?.as_deref(), Some("102"));
    bundle.delete()
}

fn a_frozen_container_is_refused_and_stays_frozen(lab: &Lab) -> Result<()> {
    let script = ": >/dev/gdrdrv; exec 9</dev/gdrdrv; exec /bin/counter 10107";
    let (bundle, _) = start(lab, "frozen", script, 10107)?;
    ensure!(bundle.runtime(&["pause", "frozen"]).status()?.success());
    says(&bundle.checkpoint_fails("frozen", &[])?, &["gdrdrv: "]);
    assert_eq!(bundle.status()?, "paused");
    let (code, _, said) = check(lab, &["--root", ROOT, "frozen"])?;
    assert_eq!(code, Some(2));
    says(&said, &["frozen is paused"]);
    assert_eq!(bundle.status()?, "paused");
    ensure!(bundle.runtime(&["resume", "frozen"]).status()?.success());
    assert_eq!(lab.ask(10107)?.as_deref(), Some("102"));
    bundle.delete()
}

fn a_check_says_what_is_in_the_way_or_that_nothing_is(lab: &Lab) -> Result<()> {
    let (good, _) = start(lab, "good", "exec /bin/counter 10108", 10108)?;
    let blocked = ": >/dev/gdrdrv; exec 9</dev/gdrdrv; exec /bin/counter 10109";
    let (blocked, _) = start(lab, "blocked", blocked, 10109)?;
    let (code, said, _) = check(lab, &["--root", ROOT, "good"])?;
    assert_eq!(code, Some(0), "{said}");
    says(
        &said,
        &["counter: RUNNING, GPU-", "a checkpoint would begin"],
    );
    let (code, said, _) = check(lab, &["--root", ROOT, "blocked"])?;
    assert_eq!(code, Some(1), "{said}");
    says(
        &said,
        &[
            "gdrdrv: process",
            "way out: ",
            "a checkpoint would be refused",
        ],
    );
    let (code, said, _) = check(lab, &["--root", ROOT, "--json", "blocked"])?;
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&said)?;
    assert_eq!(report["checkpointable"], false);
    assert_eq!(report["blockers"][0]["kind"], "gdrdrv");
    assert_eq!(report["blockers"][0]["pid"], blocked.pid()?);
    assert_eq!(report["processes"][0]["cuda"], "RUNNING");
    assert_eq!(report["processes"][0]["pid_inside"], 1);

    let (code, _, said) = check(lab, &["--root", ROOT, "nothing"])?;
    assert_eq!(code, Some(2));
    says(&said, &["no container nothing below /run/bundles"]);
    assert_eq!(check(lab, &["nothing"])?.0, Some(2));
    assert_eq!(check(lab, &[])?.0, Some(2));
    // The driver would never answer for a stopped process.
    lab.host.run(&["kill", "-STOP", &good.pid()?.to_string()])?;
    let (code, said, _) = check(lab, &["--root", ROOT, "good"])?;
    assert_eq!(code, Some(1));
    says(&said, &["stopped by a signal"]);
    lab.host.run(&["kill", "-CONT", &good.pid()?.to_string()])?;
    assert_eq!(lab.ask(10108)?.as_deref(), Some("102"));
    for bundle in [good, blocked] {
        bundle.delete()?;
    }
    an_engines_container_is_found(lab)
}

/// By its id alone, where containerd keeps it.
fn an_engines_container_is_found(lab: &Lab) -> Result<()> {
    lab.ctr_run("found", &[], &["/bin/counter", "10110"])?;
    lab.ask_until_up(10110)?;
    let (code, said, errors) = check(lab, &["found"])?;
    assert_eq!(code, Some(0), "{said}{errors}");
    says(&said, &["container found (/run/containerd/runc/default)"]);
    assert_eq!(check(lab, &["fou"])?.0, Some(0), "the beginning of its id");
    lab.ctr_remove("found")
}
