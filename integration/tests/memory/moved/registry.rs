//! Push and pull by way of a registry: Debian's `docker-registry`, over TLS and with a password.

use std::fs;

use anyhow::{Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::memory_container::names_in;
use stasis_integration::host::Daemon;
use stasis_integration::host::breaking_proxy::BreakingProxy;
use stasis_integration::host::docker_registry::{BLOBS, PORT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::layout::Layout;
use super::named::an_image_is_named_by_its_digest_and_shown;
use super::refused::{INTO, STAGING, fails, pull_fails};
use super::{moved, the_second_image_moves_its_differences};

/// The port at which connections to the registry break.
pub(super) const BREAKING: u16 = 5444;
/// The bytes that pass before the break: less than any large blob of these images has.
const AFTER: u64 = 3 << 20;
pub(super) const AUTHFILE: &str = "/root/.docker/config.json";
/// user:secret, and user:guessed.
pub(super) const RIGHT: &str = "dXNlcjpzZWNyZXQ=";
pub(super) const WRONG: &str = "dXNlcjpndWVzc2Vk";

/// Leaves the second image alone in `into`, as skopeo has copied it.
pub(super) fn an_image_travels_through_a_registry(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    into: &Layout<'_>,
) -> Result<()> {
    let registry = stasis.host.docker_registry(&[BREAKING])?;
    only_who_may_is_let_in(stasis, job)?;
    the_second_image_moves_its_differences(stasis, job, &|name| tagged(PORT, "jobs/one", name))?;
    let named = |name: &str| tagged(PORT, "jobs/one", name);
    an_image_is_named_by_its_digest_and_shown(stasis, job, &named)?;
    connections_that_break_are_made_again(stasis, job)?;
    what_the_registry_has_damaged_is_refused(stasis)?;
    skopeo_takes_it_along(stasis, into)?;
    registry.kill()?;
    let (kind, error) = pull_fails(stasis, &tagged(PORT, "jobs/one", "second"), INTO)?;
    ensure!(kind == "registry", "{kind}: {error}");
    Ok(())
}

/// Starts the registry, known at port [`BREAKING`] too, with credentials and settings for it.
pub(super) fn with_credentials<'s>(stasis: &'s StasisHost, settings: &str) -> Result<Daemon<'s>> {
    let registry = stasis.host.docker_registry(&[BREAKING])?;
    stasis.write(AUTHFILE, &credentials(RIGHT))?;
    stasis.set(&stasis.low_level, settings)?;
    Ok(registry)
}

pub(super) fn tagged(port: u16, repository: &str, tag: &str) -> String {
    format!("localhost:{port}/{repository}:{tag}")
}

fn only_who_may_is_let_in(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let reference = tagged(PORT, "jobs/one", "first");
    let image = job.image("first");
    for text in ["{}".to_owned(), credentials(WRONG)] {
        stasis.write(AUTHFILE, &text)?;
        let (kind, error) = fails(stasis, &["push", &reference, &image])?;
        ensure!(
            kind == "registry" && error.contains("may not"),
            "{kind}: {error}"
        );
        let (kind, error) = pull_fails(stasis, &reference, INTO)?;
        ensure!(
            kind == "registry" && error.contains("may not"),
            "{kind}: {error}"
        );
    }
    stasis.write("/etc/stasis/auth.json", "{")?;
    let other = [
        "push",
        &reference,
        &image,
        "--authfile",
        "/etc/stasis/auth.json",
    ];
    let (kind, error) = fails(stasis, &other)?;
    ensure!(
        kind == "registry" && error.contains("/etc/stasis/auth.json"),
        "{kind}: {error}"
    );
    stasis.write(AUTHFILE, &credentials(RIGHT))
}

pub(super) fn credentials(auth: &str) -> String {
    let one = |port: u16| format!(r#""localhost:{port}":{{"auth":"{auth}"}}"#);
    format!(r#"{{"auths":{{{},{}}}}}"#, one(PORT), one(BREAKING))
}

fn connections_that_break_are_made_again(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let proxy = BreakingProxy::start(&stasis.host, BREAKING, PORT, AFTER, 2)?;
    let reference = tagged(BREAKING, "jobs/other", "first");
    let pushed = moved(stasis, &["push", &reference, &job.image("first")])?;
    ensure!(pushed["moved_bytes"] == pushed["bytes"], "{pushed}");
    ensure!(proxy.broken() == 2, "{} broke", proxy.broken());
    drop(proxy);
    let proxy = BreakingProxy::start(&stasis.host, BREAKING, PORT, AFTER, 9)?;
    let pulled = moved(stasis, &["pull", &reference, INTO])?;
    ensure!(pulled["digest"] == pushed["digest"], "{pulled}");
    ensure!(proxy.broken() == 9, "{} broke", proxy.broken());
    stasis.run(&[PROGRAM, "verify", INTO])?;
    stasis.run(&["rm", "-r", INTO]).map(drop)
}

/// The registry serves the damaged blob under its old digest.
fn what_the_registry_has_damaged_is_refused(stasis: &StasisHost) -> Result<()> {
    let reference = tagged(PORT, "jobs/one", "second");
    let pushed = moved(stasis, &["pull", &reference, INTO])?;
    stasis.run(&["rm", "-r", INTO])?;
    let manifest = pushed["digest"].as_str().unwrap_or_default().to_owned();
    let of_memory = "for data in $(find $1 -name data -size +3M); do echo $data; done | head -n 1";
    let large = stasis.run_for_text(&["bash", "-c", of_memory, "find", BLOBS])?;
    let hex = manifest.trim_start_matches("sha256:");
    let ours = format!("{BLOBS}/sha256/{}/{hex}/data", &hex[..2]);
    for stored in [large, ours] {
        let path = stasis.path(&stored);
        let good = fs::read(&path)?;
        let mut damaged = good.clone();
        // In a manifest, one of its digests is damaged.
        let place = damaged.windows(7).position(|found| found == b"sha256:");
        let place = place.map_or(good.len() / 2, |found| found + 7);
        damaged[place] ^= 1;
        fs::write(&path, damaged)?;
        let (kind, error) = pull_fails(stasis, &reference, INTO)?;
        ensure!(kind == "image-damaged", "{kind}: {error}");
        fs::write(&path, good)?;
        let left = names_in(&stasis.path(STAGING))?;
        let is_verified = |name: &String| name.ends_with(".pack");
        ensure!(left.iter().all(is_verified), "{left:?} is left");
    }
    stasis.run(&["rm", "-rf", STAGING]).map(drop)
}

fn skopeo_takes_it_along(stasis: &StasisHost, into: &Layout<'_>) -> Result<()> {
    stasis.run(&["rm", "-rf", &into.path_inside()])?;
    let from = format!("docker://{}", tagged(PORT, "jobs/one", "second"));
    let copy = ["skopeo", "copy", "--authfile", AUTHFILE];
    stasis.run(&[&copy[..], &[&from, &into.tagged("second")]].concat())?;
    let back = tagged(PORT, "jobs/back", "second");
    let to = format!("docker://{back}");
    stasis.run(&[&copy[..], &[&into.tagged("second"), &to]].concat())?;
    let pulled = moved(stasis, &["pull", &back, INTO])?;
    ensure!(pulled["moved_blobs"] == pulled["blobs"], "{pulled}");
    stasis.run(&["rm", "-r", INTO]).map(drop)
}
