//! A dump or restore that CRIU fails gives CRIU's reason to every caller, wherever its log is.

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::saved_at_stop::SETTINGS;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{OPERATIONS_LOG, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(all_cases: sid_v2, trixie);

/// A descriptor that CRIU cannot dump, and that the driver does not close.
const UNDUMPABLE: &str = "exec 9</dev/nvidiactl; exec /bin/counter 10000";
const RUNC_CONF: &str = "/etc/criu/runc.conf";
const LOGS: &str = "/var/log/stasis";

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.run(&["mkdir", "-p", "/etc/criu", LOGS])?;
    let job = &Bundle::make(stasis, "job", &["/bin/sh", "-c", UNDUMPABLE])?;
    job.comes_up(10000, "101")?;
    the_log_cannot_be_kept(stasis, job)?;
    the_log_is_elsewhere(stasis, job)?;
    job.delete()?;
    at_a_restore(stasis)?;
    at_a_stop_without_a_gpu(stasis)
}

/// Checks that the message has CRIU's reason, and no warning about features of the kernel.
fn has_reason(message: &str) -> Result<()> {
    assert_contains(message, &["[criu]", "CRIU: Error (", "/dev/nvidiactl"]);
    for harmless in ["tun.c", "rlimit"] {
        ensure!(!message.contains(harmless), "{message}");
    }
    Ok(())
}

fn the_log_cannot_be_kept(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let full = format!(
        "mount -t tmpfs -o size=4k tmpfs {LOGS}; chmod 700 {LOGS}; \
                        head -c 4096 /dev/zero >{LOGS}/of-others"
    );
    let open = format!("mount -t tmpfs tmpfs {LOGS}; chmod 777 {LOGS}");
    for (script, why) in [(full, "No space left"), (open, "mode 0777")] {
        stasis.run(&["sh", "-ec", &script])?;
        let message = job.checkpoint_fails("no-copy", &[]);
        stasis.run(&["umount", LOGS])?;
        let message = message?;
        has_reason(&message).context(why)?;
        let log = job.image("no-copy") + "/dump.log could not be kept in";
        assert_contains(&message, &[&log, why]);
    }
    Ok(())
}

fn the_log_is_elsewhere(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    for settings in [
        "log-file /var/log/criu.log",
        "work-dir /srv",
        "work-dir=/srv\nlog-file its",
    ] {
        stasis.write(RUNC_CONF, settings)?;
        let message = job.checkpoint_fails("elsewhere", &[])?;
        has_reason(&message).context(settings)?;
        assert_contains(&message, &["its log is kept as /var/log/stasis/job-"]);
    }
    stasis.run(&["rm", RUNC_CONF])?;
    Ok(())
}

fn at_a_restore(stasis: &StasisHost) -> Result<()> {
    let job = &Bundle::make(stasis, "whole", &["/bin/counter", "10001"])?;
    job.comes_up(10001, "101")?;
    job.checkpoint("good", &[])?;
    job.delete()?;
    stasis.write(RUNC_CONF, "images-dir /srv/none\n")?;
    let message = job.restore_fails("good")?;
    assert_contains(&message, &["/etc/criu/runc.conf has images-dir /srv/none"]);
    stasis.run(&["rm", RUNC_CONF])?;
    job.restore("good")?;
    job.delete()
}

/// The notes of the stop are the only report there.
fn at_a_stop_without_a_gpu(stasis: &StasisHost) -> Result<()> {
    let settings = format!("{SETTINGS}preflight.allow = [\"nvidia-device\"]\n");
    stasis.set(&stasis.low_level, &settings)?;
    let script = "exec 9</dev/nvidiactl; trap 'exit 7' TERM; : >/ready; while :; do :; done";
    let plain = &Bundle::make(stasis, "plain", &["/bin/sh", "-c", script])?;
    plain.annotate("io.stasis.checkpoint", "on-stop")?;
    plain.change(|spec| {
        let devices = spec["linux"]["devices"].as_array_mut();
        devices
            .into_iter()
            .for_each(|devices| devices.retain(|it| it["path"] == "/dev/nvidiactl"));
    })?;
    plain.create()?;
    plain.start()?;
    plain.until_ready()?;
    plain.kill("TERM")?;
    wait_until_clear(|| Ok(Some(plain.status()?).filter(|status| status != "stopped")))?;
    stasis.nobody_is_stopped()?;
    let notes = stasis.operation("stop")?["notes"].to_string();
    assert_contains(&notes, &["SIGTERM was delivered", "its log is kept as"]);
    has_reason(&notes)?;
    let log = fs::read_to_string(stasis.path(OPERATIONS_LOG))?;
    ensure!(log.contains("\"operation\":\"checkpoint\""), "{log}");
    let kept = notes.split("its log is kept as ").nth(1);
    let kept = kept.and_then(|rest| rest.split(';').next());
    let log = fs::read_to_string(stasis.path(kept.context("it names none")?))?;
    assert_contains(&log, &["Dumping FAILED"]);
    plain.delete()
}
