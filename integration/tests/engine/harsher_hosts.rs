//! Callers and containers of hosts that are less gentle: masks of file modes, few descriptors,
//! a linker that is told to load something, engines' capabilities, device rules and seccomp
//! profile, a user namespace. (A test machine has a pid_max of 32,768 as it is.)

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis::error::kind::{Kind, State};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::needs;

const PORT: u16 = 10320;
const CALLER: &str = "/usr/local/bin/harsh-caller";

#[test]
fn odd_callers() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
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
        assert_eq!(stasis.host.run_for_text(&mode)?, "600", "{settings}");
        stasis.host.run(&["umount", "/run/bundle-job/rootfs"])?;
        stasis
            .host
            .run(&["rm", "-rf", "/run/bundle-job", "/images/job-ends"])?;
    }
    Ok(())
}

fn caller(stasis: &StasisHost, settings: &str) -> Result<&'static str> {
    let script = format!("#!/bin/sh\n{settings}\nexec {RUNTIME} \"$@\" 2>/dev/null\n");
    stasis.host.write(CALLER, &script)?;
    stasis.host.run(&["chmod", "755", CALLER])?;
    Ok(CALLER)
}

fn goes_on_and_comes_back(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.run()?;
    assert_eq!(stasis.ask_until_up(PORT)?, "ok 0");
    job.checkpoint("goes-on", &["--leave-running"])?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    job.checkpoint("ends", &[])?;
    job.restore("ends")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 2"));
    job.delete()
}

/// As `ctr run --seccomp` starts it: containerd's default profile.
#[test]
fn the_default_seccomp_profile() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid_v2()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
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
    stasis
        .host
        .run(&[&checkpoint[..], &["filtered", reference]].concat())?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    stasis.ctr_remove("filtered")?;
    let restore = ["ctr", "containers", "restore", "--live", "--rw"];
    stasis
        .host
        .run(&[&restore[..], &["filtered", reference]].concat())?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    stasis.ctr_remove("filtered")
}

/// Whose root is nobody on the host. CRIU opens images in there, too, so that user gets the right
/// to search their directory, and nobody else does.
#[test]
fn a_user_namespace() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid_v2()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10320"])?;
    job.change(|spec| {
        let all = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
        spec["linux"]["uidMappings"] = all.clone();
        spec["linux"]["gidMappings"] = all;
        // A namespace that shares the host's network may not have it.
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            let is_of_sys = |mount: &Value| {
                let path = mount["destination"].as_str().unwrap_or_default();
                path.starts_with("/sys")
            };
            mounts.retain(|mount| !is_of_sys(mount));
        }
        if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
            namespaces.push(json!({ "type": "user" }));
        }
    })?;
    stasis.host.run(&["chmod", "755", "/run/bundle-job"])?;
    let files = ["chown", "-R", "100000:100000", "/run/bundle-job/rootfs"];
    stasis.host.run(&files)?;
    // Who calls with that mask lets nobody read what CRIU and runc make either.
    let job = job.through(caller(stasis, "umask 077")?);
    in_a_user_namespace(stasis, &job).context("umask 077")?;
    let job = job.through(RUNTIME);
    in_a_user_namespace(stasis, &job)?;
    is_refused_without_lists(stasis, &job)
}

fn in_a_user_namespace(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image("ends");
    stasis.host.run(&["rm", "-rf", "/images"])?;
    job.run()?;
    assert_eq!(stasis.ask_until_up(PORT)?, "ok 0");
    job.checkpoint("goes-on", &["--leave-running"])?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    job.checkpoint("ends", &[])?;
    stasis.host.run(&["chmod", "700", "/images", &image])?;
    job.restore("ends")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 2"));
    let others = stasis.host.run_for_text(&["stat", "-c", "%A", &image])?;
    ensure!(others.ends_with("---"), "{others}");
    job.delete()
}

/// A file system that has no access control lists.
fn is_refused_without_lists(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let (image, bare) = (job.image("ends"), job.image("bare"));
    stasis.host.run(&["mkdir", &bare])?;
    stasis
        .host
        .run(&["mount", "-t", "ramfs", "-o", "mode=700", "ramfs", &bare])?;
    stasis
        .host
        .run(&["sh", "-c", &format!("cp -rp {image}/* {bare}")])?;
    stasis.host.run(&["chmod", "700", &bare])?;
    job.restore_fails("bare")?;
    let failure = job.failure()?.context("it reports nothing")?;
    assert_eq!(
        (failure.kind, failure.state),
        (Some(Kind::ImageDirectory), Some(State::Unharmed))
    );
    assert!(failure.message.contains("chmod o+x"), "{}", failure.message);
    stasis.host.run(&["chmod", "711", &bare])?;
    job.restore("bare")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 2"));
    job.delete()
}
