//! Callers and containers of less gentle hosts: file mode masks, few descriptors, a linker that has
//! to load a library, engines' capabilities, device rules and seccomp profile. (A test machine has
//! a pid_max of 32,768 as it is.)

use anyhow::{Context, Result};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::needs;

const PORT: u16 = 10320;
const CALLER: &str = "/usr/local/bin/harsh-caller";

#[test]
fn odd_callers() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    for settings in [
        "umask 077",
        "umask 0",
        "ulimit -Sn 256",
        "export LD_PRELOAD=/nowhere/x.so LD_LIBRARY_PATH=/nowhere CRIU_LIBS_DIR=/nowhere",
    ] {
        let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10320"])?;
        let job = job.through(caller(stasis, settings)?);
        job.give(&[0])?;
        goes_on_and_comes_back(stasis, &job).context(settings)?;
        let mode = ["stat", "-c", "%a", "/images/job-ends/stasis.json"];
        assert_eq!(stasis.run_for_text(&mode)?, "600", "{settings}");
        stasis.run(&["umount", "/run/bundle-job/rootfs"])?;
        stasis.run(&["rm", "-rf", "/run/bundle-job", "/images/job-ends"])?;
    }
    Ok(())
}

pub(crate) fn caller(stasis: &StasisHost, settings: &str) -> Result<&'static str> {
    let script = format!("#!/bin/sh\n{settings}\nexec {RUNTIME} \"$@\" 2>/dev/null\n");
    stasis.script(CALLER, &script)?;
    Ok(CALLER)
}

fn goes_on_and_comes_back(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.comes_up(PORT, "ok 0")?;
    job.checkpoint("goes-on", &["--leave-running"])?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    job.checkpoint("ends", &[])?;
    job.restore("ends")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 2"));
    job.delete()
}

/// Started as by `ctr run --seccomp`: with containerd's default profile.
#[test]
fn the_default_seccomp_profile() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    stasis.ctr_run(
        "filtered",
        &["--seccomp"],
        &["/bin/memcheck", "24", "10320"],
    )?;
    assert_eq!(stasis.ask_until_up(PORT)?, "ok 0");
    let checkpoint = [
        "ctr",
        "containers",
        "checkpoint",
        "--task",
        "--image",
        "--rw",
    ];
    let reference = "example.com/filtered:1";
    stasis.run(&[&checkpoint[..], &["filtered", reference]].concat())?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    stasis.ctr_remove("filtered")?;
    let restore = ["ctr", "containers", "restore", "--live", "--rw"];
    stasis.run(&[&restore[..], &["filtered", reference]].concat())?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    stasis.ctr_remove("filtered")
}
