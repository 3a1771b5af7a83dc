//! A restore that ends before runc has recorded the container: the processes that CRIU had brought
//! up are ended, runc's mounts are unmounted, and the next restore succeeds.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

/// A path that runc searches before CRIU's own.
const CRIU: &str = "/usr/local/sbin/criu";
const LEFT: &str = "/run/left";
/// runc has put CRIU into the container's cgroup before it sends the request. The child holds none
/// of CRIU's descriptors, as CRIU's children close theirs; dash cannot close descriptors above 9.
const LEAVES_A_CHILD: &str = r#"#!/bin/sh
[ "$1 $2" = "swrk 3" ] || exec /usr/sbin/criu "$@"
dd bs=1M count=1 <&3 >/dev/null 2>&1
setsid bash -c 'for fd in /proc/$$/fd/*; do
    fd=${fd##*/}; [ "$fd" -gt 2 ] && eval "exec $fd>&-"
done; exec sleep 1000' </dev/null >/dev/null 2>&1 &
echo $! >/run/left
"#;
const CRIU_FAILS: &str = "exit 1\n";
const RUNC_IS_KILLED: &str = "kill -9 $PPID\nexit 1\n";
const ENGINE_IS_KILLED: &str = "kill -9 $(ps -o ppid= -p $PPID)\nexit 1\n";

on_hosts!(all_cases: sid, trixie_v2, sid_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = &Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10000"])?;
    all_of_it_is_ended(stasis, job)?;
    its_mounts_are_gone(stasis, job)?;
    without_gpu_state(stasis)
}

fn without_gpu_state(stasis: &StasisHost) -> Result<()> {
    let plain = &Bundle::make(stasis, "plain", &["/bin/pause"])?;
    plain.change(|spec| spec["linux"]["devices"] = json!([]))?;
    plain.run()?;
    plain.checkpoint("image", &[])?;
    plain.delete()?;
    for end in [RUNC_IS_KILLED, ENGINE_IS_KILLED] {
        is_cut_off(stasis, plain, end).context(end)?;
        plain.restore("image").context(end)?;
        assert_eq!(plain.status()?, "running");
        plain.delete()?;
    }
    Ok(())
}

fn all_of_it_is_ended(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    for path in [None, Some("/jobs/job")] {
        job.change(|spec| {
            if let Some(path) = path {
                spec["linux"]["cgroupsPath"] = path.into();
            }
        })?;
        job.comes_up(10000, "ok 0")?;
        job.checkpoint("image", &[])?;
        job.delete()?;
        for end in [CRIU_FAILS, ENGINE_IS_KILLED] {
            let case = || format!("{path:?}, {end}");
            is_cut_off(stasis, job, end).with_context(case)?;
            job.restore("image").with_context(case)?;
            assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
            job.delete()?;
        }
        stasis.run(&["rm", "-r", &job.image("image")])?;
    }
    Ok(())
}

/// runc makes mounts below the root file system for a moment, and may be killed at that time.
fn its_mounts_are_gone(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let root = format!("{}/rootfs", job.directory());
    let mount =
        |name: &str| format!("mkdir -p {root}/{name} && mount -t tmpfs {name} {root}/{name}");
    let mounts = [mount("made"), mount("made/inner"), mount("made")].join(" && ");
    for (count, end) in ["exit 1", "kill -9 $PPID; exit 1"].into_iter().enumerate() {
        job.comes_up(10000, "ok 0")?;
        let image = count.to_string();
        job.before("restore", &format!("{mounts}; {end}"), "")?;
        job.checkpoint(&image, &[])?;
        job.delete()?;
        stasis.run(&["bash", "-c", &mount("kept")])?;
        job.restore_fails(&image)?;
        stasis.nothing_to_put_right()?;
        let table = stasis.run_for_text(&["cat", "/proc/self/mountinfo"])?;
        ensure!(!table.contains(&format!("{root}/made")), "{end}: {table}");
        ensure!(table.contains(&format!("{root}/kept")), "{end}: {table}");
        stasis.run(&["umount", &format!("{root}/kept")])?;
        stasis.set(&stasis.low_level, "")?;
        job.restore(&image)?;
        assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
        job.delete()?;
    }
    Ok(())
}

fn is_cut_off(stasis: &StasisHost, job: &Bundle<'_>, end: &str) -> Result<()> {
    stasis.script(CRIU, &format!("{LEAVES_A_CHILD}{end}"))?;
    job.restore_fails("image")?;
    stasis.run(&["rm", CRIU])?;
    let left = std::fs::read_to_string(stasis.path(LEFT))?;
    let process = stasis.path(format!("/proc/{}", left.trim()));
    if end == ENGINE_IS_KILLED {
        stasis.nothing_to_put_right()?;
    }
    ensure!(has_ended(&process), "what CRIU has started is left");
    Ok(())
}

/// Whether the process has ended; its parent may not have waited for it yet.
fn has_ended(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}
