//! Checkpoints that are refused, and ones that pass.

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::requirement::{Requirement, leave_out};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{SELF_TESTS, StasisHost};
use stasis_integration::needs;

use super::{check, start};

/// Checks that a checkpoint is refused with these parts in the message, nothing is left of it, and
/// the workload counts on.
fn refused(stasis: &StasisHost, bundle: &Bundle<'_>, port: u16, parts: &[&str]) -> Result<()> {
    let before = stasis.ask(port)?.context("the workload is silent")?;
    let message = bundle.checkpoint_fails("refused", &[])?;
    assert_contains(
        &message,
        &["refused", "nothing was changed", "preflight.allow"],
    );
    assert_contains(&message, parts);
    ensure!(!bundle.image_path("refused").exists(), "an image directory");
    let records = stasis.records()?;
    ensure!(records.is_empty(), "left: {records}");
    let after = stasis.ask(port)?.context("the workload is silent")?;
    if let (Ok(before), Ok(after)) = (before.parse::<u32>(), after.parse::<u32>()) {
        assert_eq!(after, before + 1);
    }
    Ok(())
}

pub(crate) fn held_files_are_refused(stasis: &StasisHost) -> Result<()> {
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
        let (bundle, _) = start(stasis, id, &held(open), 10100)?;
        refused(stasis, &bundle, 10100, &parts)?;
        bundle.delete()?;
    }
    // The files that PyTorch has open on any GPU are no evidence of MIG.
    let caps = "mkdir -p /dev/nvidia-caps; : >/dev/nvidia-caps/nvidia-cap1; \
                exec 9</dev/nvidia-caps/nvidia-cap1; exec /bin/counter 10100";
    let (bundle, _) = start(stasis, "caps", caps, 10100)?;
    let (code, stdout, _) = check(stasis, &["--root", ROOT, "caps"])?;
    assert_eq!(code, Some(0), "{stdout}");
    bundle.delete()
}

pub(crate) fn several_blockers_are_named_together(stasis: &StasisHost) -> Result<()> {
    let script = "mkdir -p /dev/infiniband; : >/dev/infiniband/uverbs0; : >/dev/gdrdrv; \
                  exec 8</dev/infiniband/uverbs0 9</dev/gdrdrv; exec /bin/counter 10101";
    let (bundle, _) = start(stasis, "both", script, 10101)?;
    let both = ["gdrdrv: ", "rdma: ", "allow = [\"gdrdrv\", \"rdma\"]"];
    refused(stasis, &bundle, 10101, &both)?;
    stasis.set("runc", "preflight.allow = [\"rdma\"]\n")?;
    refused(stasis, &bundle, 10101, &["allow = [\"gdrdrv\"]"])?;
    // Files of these names do CRIU no harm: allowed, the checkpoint succeeds, and the log names the
    // blockers that it has passed.
    stasis.set("runc", "preflight.allow = [\"rdma\", \"gdrdrv\"]\n")?;
    bundle.checkpoint("allowed", &["--leave-running"])?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_contains(
        &notes,
        &["allowed gdrdrv: process", "allowed rdma: process"],
    );
    stasis.set("runc", "preflight.allow = [\"nccl\"]\n")?;
    let message = bundle.checkpoint_fails("wrong", &[])?;
    assert_contains(&message, &["stasis.toml:", "nccl-p2p"]);
    stasis.set("runc", "")?;
    bundle.delete()
}

pub(crate) fn io_uring_is_refused(stasis: &StasisHost) -> Result<()> {
    let probe = Bundle::make(stasis, "probe", &["/bin/ring", "/bin/pause"])?;
    probe.run()?;
    // With a ring the process becomes `pause`, without one it ends.
    let comm = stasis.path(format!("/proc/{}/comm", probe.pid()?));
    let has_ring = || fs::read_to_string(&comm).is_ok_and(|name| name == "pause\n");
    wait_until_clear(|| {
        let decided = has_ring() || probe.status()? == "stopped";
        Ok((!decided).then(|| "the probe".to_owned()))
    })?;
    let has_rings = has_ring();
    probe.delete()?;
    if !has_rings {
        return leave_out("io_uring_is_refused", Requirement::IoUring);
    }
    // Not only CUDA processes are checked: CRIU dumps all.
    let neighbour = "/bin/ring /bin/pause & exec /bin/counter 10102";
    let own = "exec /bin/ring /bin/counter 10102";
    for (id, script, name) in [
        ("ring-1", neighbour, "(pause)"),
        ("ring-2", own, "(counter)"),
    ] {
        let (bundle, _) = start(stasis, id, script, 10102)?;
        // The process has become another program when it blocks.
        stasis
            .host
            .until_a_process_is(name.trim_matches(['(', ')']))?;
        let parts = ["io-uring: ", "anon_inode:[io_uring]", name, "USE_LIBUV=0"];
        refused(stasis, &bundle, 10102, &parts)?;
        bundle.delete()?;
    }
    Ok(())
}

pub(crate) fn a_plain_neighbour_with_an_nvidia_device_is_refused(
    stasis: &StasisHost,
) -> Result<()> {
    let script = "(exec 9</dev/nvidiactl; exec /bin/pause) & exec /bin/counter 10103";
    let (bundle, _) = start(stasis, "monitor", script, 10103)?;
    stasis.host.until_a_process_is("pause")?;
    let parts = [
        "nvidia-device: ",
        "(pause)",
        "descriptor 9 is \"/dev/nvidiactl\"",
    ];
    refused(stasis, &bundle, 10103, &parts)?;
    bundle.delete()
}

pub(crate) fn managed_memory_is_refused(stasis: &StasisHost) -> Result<()> {
    let script = "exec /bin/memcheck 16 10104 managed";
    let (bundle, answer) = start(stasis, "uvm", script, 10104)?;
    assert_eq!(answer, "ok 0");
    refused(
        stasis,
        &bundle,
        10104,
        &["managed-memory: ", "/dev/nvidia-uvm"],
    )?;
    assert_eq!(stasis.ask(10104)?.as_deref(), Some("ok 3"));
    bundle.delete()
}

/// Returns the script of two ranks, with these variables, that pass for ranks of NCCL.
fn ranks(variables: &str) -> String {
    format!("{variables} exec /bin/ranks 10105 2 nccl=/bin/pause")
}

pub(crate) fn nccl_ranks_are_refused_unless_they_share_nothing(stasis: &StasisHost) -> Result<()> {
    // Before the lock, and where nothing is known at it.
    stasis.surveys_have_failed()?;
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
        let (bundle, _) = start(stasis, id, &ranks(variables), 10105)?;
        let missing = format!("was not started with {missing}");
        let parts = [
            "nccl-p2p: ",
            "pt_nccl_watchdg",
            &missing,
            "NCCL_NVLS_ENABLE=0",
        ];
        refused(stasis, &bundle, 10105, &parts)?;
        bundle.delete()?;
    }
    let in_file = format!(
        "echo {p2p} >/etc/nccl.conf; {}",
        ranks("NCCL_CUMEM_ENABLE=0")
    );
    let apart = ranks(&format!("{p2p} NCCL_CUMEM_ENABLE=0"));
    let alone = "exec /bin/ranks 10105 1 nccl=/bin/pause".to_owned();
    // On a busy machine ranks need longer to meet than a lock has by default.
    stasis.set("runc", "deadlines.lock_ms = 60000\n")?;
    for (id, script) in [("apart-1", in_file), ("apart-2", apart), ("apart-3", alone)] {
        let (bundle, _) = start(stasis, id, &script, 10105)?;
        let (code, stdout, _) = check(stasis, &["--root", ROOT, id])?;
        assert_eq!(code, Some(0), "{id}: {stdout}");
        bundle.checkpoint("apart", &[])?;
        bundle.restore("apart")?;
        assert_contains(&stasis.ask_until_up(10105)?, &["ok "]);
        bundle.delete()?;
    }
    stasis.run(&["rm", "-r", SELF_TESTS])?;
    stasis.set("runc", "")
}

/// Two jobs over NVLink on one GPU were lost when one of them was locked.
pub(crate) fn ranks_beside_another_program_are_refused(stasis: &StasisHost) -> Result<()> {
    let (job, _) = start(stasis, "beside", &ranks(""), 10105)?;
    let (other, _) = start(stasis, "other", "exec /bin/counter 10107", 10107)?;
    let parts = [
        "shared-gpu: ",
        "outside of the container uses GPU-",
        "stasis suspend",
    ];
    refused(stasis, &job, 10105, &parts)?;
    assert_eq!(stasis.ask(10107)?.as_deref(), Some("102"));
    // It is no rank.
    other.checkpoint("other", &["--leave-running"])?;
    other.delete()?;
    job.checkpoint("alone", &["--leave-running"])?;
    assert_contains(&stasis.ask_until_up(10105)?, &["ok "]);
    job.delete()
}

pub(crate) fn mig_is_refused(stasis: &StasisHost) -> Result<()> {
    needs!(StandIn);
    let (bundle, _) = start(stasis, "mig", "exec /bin/counter 10106", 10106)?;
    stasis.inject("mig 0")?;
    let message = bundle.checkpoint_fails("mig", &[])?;
    stasis.inject("")?;
    assert_contains(
        &message,
        &["mig: ", "is in MIG mode", "nothing was changed"],
    );
    assert_eq!(stasis.ask(10106)?.as_deref(), Some("102"));
    bundle.delete()
}

pub(crate) fn a_frozen_container_is_refused_and_stays_frozen(stasis: &StasisHost) -> Result<()> {
    let script = ": >/dev/gdrdrv; exec 9</dev/gdrdrv; exec /bin/counter 10107";
    let (bundle, _) = start(stasis, "frozen", script, 10107)?;
    bundle.pause()?;
    assert_contains(&bundle.checkpoint_fails("frozen", &[])?, &["gdrdrv: "]);
    assert_eq!(bundle.status()?, "paused");
    let (code, _, stderr) = check(stasis, &["--root", ROOT, "frozen"])?;
    assert_eq!(code, Some(2));
    assert_contains(&stderr, &["frozen is paused"]);
    assert_eq!(bundle.status()?, "paused");
    ensure!(bundle.runtime(&["resume", "frozen"]).status()?.success());
    assert_eq!(stasis.ask(10107)?.as_deref(), Some("102"));
    bundle.delete()
}
