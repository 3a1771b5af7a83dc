//! Containers with a user namespace, whose root is nobody on the host.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::needs;

use super::harsher_hosts::caller;

const PORT: u16 = 10321;
/// A namespace of the container: its type, and the path of the one that it joins.
type Namespace<'p> = (&'static str, Option<&'p str>);
const OWN: Namespace<'_> = ("user", None);

/// CRIU opens images in the namespace, too, so its root gets the right to search their directory,
/// and no other user does.
#[test]
fn its_root_is_let_into_an_image() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let job = made(stasis, "job", &["/bin/memcheck", "24", "10321"], &[OWN])?;
    // With the caller's mask, other users cannot read the files of CRIU and runc either.
    let job = job.through(caller(stasis, "umask 077")?);
    in_a_user_namespace(stasis, &job).context("umask 077")?;
    let job = job.through(RUNTIME);
    in_a_user_namespace(stasis, &job)?;
    is_refused_without_lists(stasis, &job)
}

fn in_a_user_namespace(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image("ends");
    stasis.run(&["rm", "-rf", "/images"])?;
    job.comes_up(PORT, "ok 0")?;
    job.checkpoint("goes-on", &["--leave-running"])?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    job.checkpoint("ends", &[])?;
    stasis.run(&["chmod", "700", "/images", &image])?;
    job.restore("ends")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 2"));
    let others = stasis.run_for_text(&["stat", "-c", "%A", &image])?;
    ensure!(others.ends_with("---"), "{others}");
    job.delete()
}

/// A file system without access control lists.
fn is_refused_without_lists(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let (image, bare) = (job.image("ends"), job.image("bare"));
    stasis.run(&["mkdir", &bare])?;
    stasis.run(&["mount", "-t", "ramfs", "-o", "mode=700", "ramfs", &bare])?;
    stasis.run(&["sh", "-c", &format!("cp -rp {image}/* {bare}")])?;
    stasis.run(&["chmod", "700", &bare])?;
    job.restore_fails("bare")?;
    let failure = job.failure()?.context("it reports nothing")?;
    assert_eq!(
        (failure.kind, failure.state),
        (Some(Kind::ImageDirectory), Some(State::Unharmed))
    );
    assert!(failure.message.contains("chmod o+x"), "{}", failure.message);
    stasis.run(&["chmod", "711", &bare])?;
    job.restore("bare")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 2"));
    job.delete()
}

#[test]
fn a_network_of_its_own() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let job = made(
        stasis,
        "job",
        &["/bin/counter", "0"],
        &[OWN, ("network", None)],
    )?;
    job.run()?;
    let counted = counts_beyond(stasis, &job, 100)?;
    job.checkpoint("goes-on", &["--leave-running"])?;
    let counted = counts_beyond(stasis, &job, counted)?;
    job.checkpoint("ends", &[])?;
    job.restore("ends")?;
    counts_beyond(stasis, &job, counted)?;
    job.delete()
}

/// Containers of a pod join its network, and its pids if they share them. CRIU makes the user
/// namespace anew, and its root may join neither.
#[test]
fn namespaces_of_a_pod() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let pod = made(stasis, "pod", &["/bin/pause"], &[OWN, ("network", None)])?;
    pod.run()?;
    let of_pod = format!("/proc/{}/ns", pod.pid()?);
    let users = format!("{of_pod}/user");
    for (kind, name) in [("network", "net"), ("pid", "pid")] {
        let joined = format!("{of_pod}/{name}");
        let namespaces = [("user", Some(&*users)), (kind, Some(&*joined))];
        let job = made(stasis, "job", &["/bin/counter", "0"], &namespaces)?;
        is_refused(stasis, &job, &format!("the {kind} of {joined}")).context(kind)?;
        // If CRIU ever restores it, the refusal is not needed any more.
        stasis.set("runc", "preflight.allow = [\"joined-namespace\"]\n")?;
        job.checkpoint("allowed", &[])?;
        job.restore_fails("allowed").context(kind)?;
        stasis.set("runc", "")?;
        stasis.run(&["umount", "/run/bundle-job/rootfs"])?;
        stasis.run(&["rm", "-rf", "/run/bundle-job", "/images"])?;
    }
    pod.delete()
}

fn is_refused(stasis: &StasisHost, job: &Bundle<'_>, joined: &str) -> Result<()> {
    job.run()?;
    let counted = counts_beyond(stasis, job, 100)?;
    job.checkpoint_fails("refused", &[])?;
    let failure = job.failure()?.context("it reports nothing")?;
    assert_eq!(
        (failure.kind, failure.state),
        (Some(Kind::Blocked), Some(State::Unharmed))
    );
    let named = [
        "joined-namespace: ",
        joined,
        "hostUsers: true",
        "nothing was changed",
    ];
    assert_contains(&failure.message, &named);
    counts_beyond(stasis, job, counted)?;
    Ok(())
}

/// Makes a container in these namespaces, with root of the first as its root.
fn made<'s>(
    stasis: &'s StasisHost,
    id: &str,
    command: &[&str],
    namespaces: &[Namespace<'_>],
) -> Result<Bundle<'s>> {
    let job = Bundle::make(stasis, id, command)?;
    job.change(|spec| {
        let all = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
        spec["linux"]["uidMappings"] = all.clone();
        spec["linux"]["gidMappings"] = all;
        // A namespace that shares the host's network may not mount this.
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            let is_of_sys = |mount: &Value| {
                let path = mount["destination"].as_str().unwrap_or_default();
                path.starts_with("/sys")
            };
            mounts.retain(|mount| !is_of_sys(mount));
        }
        if let Some(entries) = spec["linux"]["namespaces"].as_array_mut() {
            for (kind, path) in namespaces {
                entries.retain(|entry| entry["type"] != *kind);
                entries.push(match path {
                    Some(path) => json!({ "type": kind, "path": path }),
                    None => json!({ "type": kind }),
                });
            }
        }
    })?;
    let directory = job.directory();
    stasis.run(&["chmod", "755", &directory])?;
    let files = format!("{directory}/rootfs");
    stasis.run(&["chown", "-R", "100000:100000", &files])?;
    Ok(job)
}

/// Waits until the container has counted beyond `counted`. Returns its count.
fn counts_beyond(stasis: &StasisHost, job: &Bundle<'_>, counted: u32) -> Result<u32> {
    let answer = format!("{}/rootfs/answer", job.directory());
    let answer = stasis.path(answer);
    let count = || -> Option<u32> { fs::read_to_string(&answer).ok()?.trim().parse().ok() };
    wait_until_clear(|| {
        let count = count();
        Ok((count <= Some(counted)).then(|| format!("{count:?} after {counted}")))
    })?;
    count().context("no count")
}
