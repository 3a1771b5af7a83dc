//! New containers that name an image of a registry: it is pulled once for all that begin with it,
//! and a container that may not have it, or cannot, starts cold and says why.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::memory_container::{flip_bit_of_a_pack, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::breaking_proxy::BreakingProxy;
use stasis_integration::host::docker_registry::PORT;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use super::moved;
use super::refused::{INTO, fails};
use super::registry::{AUTHFILE, BREAKING, RIGHT, WRONG, credentials, tagged, with_credentials};
use crate::from_files::replicas::{REPLICAS, apart, asked, create_at_once, is_created};

/// The registry is reached through a proxy that counts.
const SETTINGS: &str = "restore.at_create = \"/images\"\n\
    restore.registry = \"localhost:5444/jobs\"\nrestore.keep_pulled = 1\n";
/// The directory of pulled images.
const PULLED: &str = "/images/.pulled";
const REPOSITORY: &str = "jobs/red/one";
/// More bytes than manifests, indexes and tokens have; less than an image has.
const SMALL_DOCUMENTS: u64 = 1 << 20;

#[test]
fn containers_begin_with_an_image_of_a_registry() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    let registry = with_credentials(stasis, SETTINGS)?;
    let first = apart(stasis, "first")?;
    first.run()?;
    ensure!(asked(stasis, "first")? == "ok 0");
    first.checkpoint("image", &["--leave-running"])?;
    ensure!(asked(stasis, "first")? == "ok 1");
    first.checkpoint("later", &[])?;
    let push = |image: &str| {
        let reference = tagged(PORT, REPOSITORY, image);
        moved(stasis, &["push", &reference, &first.image(image)])
    };
    let pushed = push("image")?["bytes"].as_u64().context("no bytes")?;
    push("later")?;
    for image in ["image", "later"] {
        stasis.run(&["rm", "-r", &first.image(image)])?;
    }

    let proxy = BreakingProxy::start(&stasis.host, BREAKING, PORT, u64::MAX, 0)?;
    what_may_not_be_restored_is_not_asked_for(stasis, &proxy)?;
    what_would_not_run_here_is_not_fetched(stasis, &proxy)?;
    many_fetch_it_once(stasis, &proxy, pushed)?;
    only_its_namespace_names_it(stasis, &first, &proxy)?;
    it_is_named_by_its_digest(stasis, &first)?;
    a_damaged_one_is_fetched_again(stasis, &first, &proxy, pushed)?;
    those_used_last_are_kept(stasis, &first)?;
    stasis.write(AUTHFILE, &credentials(WRONG))?;
    starts_cold(stasis, &first, &image("image"), "may not")?;
    stasis.write(AUTHFILE, &credentials(RIGHT))?;
    registry.kill()?;
    starts_cold(stasis, &first, &image("image"), "cannot be pulled")?;
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    starts_cold(stasis, &first, &image("image"), "restore.registry")?;
    stasis.nothing_to_put_right()
}

fn image(tag: &str) -> String {
    tagged(BREAKING, REPOSITORY, tag)
}

fn many_fetch_it_once(stasis: &StasisHost, proxy: &BreakingProxy, bytes: u64) -> Result<()> {
    let numbered = (0..REPLICAS).map(|number| {
        let replica = apart(stasis, &format!("replica{number}"))?;
        replica.begin_with(&image("image"))?;
        Ok(replica)
    });
    let replicas = numbered.collect::<Result<Vec<_>>>()?;
    create_at_once(&replicas)?;
    let passed = proxy.passed();
    ensure!(
        (bytes..bytes * 2).contains(&passed),
        "{passed} bytes came of {bytes}"
    );
    ensure!(names_in(&stasis.path(PULLED))?.len() == 1);
    for replica in &replicas {
        replica.start()?;
        let said = asked(stasis, &replica.id)?;
        ensure!(said == "ok 1", "{}: {said}", replica.id);
        replica.delete()?;
    }
    Ok(())
}

/// The disk damages it: a create does not read GPU contents, and a start that does fails.
fn a_damaged_one_is_fetched_again(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    proxy: &BreakingProxy,
    bytes: u64,
) -> Result<()> {
    let pulled = names_in(&stasis.host.path(PULLED))?.remove(0);
    flip_bit_of_a_pack(&stasis.host.path(format!("{PULLED}/{pulled}")))?;
    let before = proxy.passed();
    job.begin_with(&image("image"))?;
    job.create()?;
    is_created(job)?;
    let failed = job.start().err().context("it was started")?;
    assert_contains(&failed.to_string(), &["image-damaged"]);
    job.delete()?;
    job.create()?;
    is_created(job)?;
    job.start()?;
    ensure!(asked(stasis, &job.id)? == "ok 1");
    ensure!(proxy.passed() - before > bytes, "it was not fetched again");
    job.delete()
}

fn only_its_namespace_names_it(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    proxy: &BreakingProxy,
) -> Result<()> {
    let before = proxy.passed();
    job.begin_with(&image("image"))?;
    in_pod_of(job, "red")?;
    job.create()?;
    is_created(job)?;
    // Only the manifest was fetched.
    ensure!(proxy.passed() - before < 1 << 20, "it was fetched again");
    job.start()?;
    ensure!(asked(stasis, &job.id)? == "ok 1");
    job.delete()?;
    in_pod_of(job, "blue")?;
    starts_cold(
        stasis,
        job,
        &image("image"),
        "is not in localhost:5444/jobs/blue/",
    )?;
    job.change(|spec| spec["annotations"] = json!({}))?;
    for other in [
        "localhost:5444/jobs-too/one:1",
        "localhost:5443/jobs/red/one:image",
    ] {
        starts_cold(stasis, job, other, "is not in localhost:5444/jobs/")?;
    }
    starts_cold(stasis, job, &image("none"), "none")
}

fn those_used_last_are_kept(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let kept = || names_in(&stasis.path(PULLED));
    let before = kept()?;
    job.begin_with(&image("later"))?;
    job.create()?;
    is_created(job)?;
    job.start()?;
    ensure!(asked(stasis, &job.id)? == "ok 2");
    job.delete()?;
    wait_until_clear(|| {
        let now = kept()?;
        let is_other = now.len() == 1 && now != before;
        Ok((!is_other).then(|| format!("{now:?} is there, and was {before:?}")))
    })
}

fn what_may_not_be_restored_is_not_asked_for(
    stasis: &StasisHost,
    proxy: &BreakingProxy,
) -> Result<()> {
    let elsewhere = format!("{SETTINGS}restore.images = [\"/elsewhere\"]\n");
    stasis.set(&stasis.low_level, &elsewhere)?;
    let barred = apart(stasis, "barred")?;
    starts_cold(
        stasis,
        &barred,
        &image("image"),
        "from which images may be restored",
    )?;
    ensure!(proxy.passed() == 0, "the registry was asked");
    stasis.set(&stasis.low_level, SETTINGS)
}

/// Its manifest and its index show it: the processes have another driver's libraries.
fn what_would_not_run_here_is_not_fetched(
    stasis: &StasisHost,
    proxy: &BreakingProxy,
) -> Result<()> {
    let here = || -> Result<(Option<i32>, Value)> {
        let mut command = stasis.command(PROGRAM);
        let output = command.args(["verify", "--here", "--json", &image("image")]);
        let output = output.output()?;
        Ok((output.status.code(), listed(&output.stdout)?.remove(0)))
    };
    let (code, row) = here()?;
    ensure!(code == Some(0) && row["restorable"] == true, "{row}");
    ensure!(row["gpu_bytes"].is_u64(), "{row}");
    stasis.inject("driver 580.105.08")?;
    let (code, row) = here()?;
    ensure!(code == Some(1) && row["kind"] == "other-driver", "{row}");
    let (kind, error) = fails(stasis, &["pull", "--background", &image("image"), INTO])?;
    ensure!(kind == "other-driver", "{kind}: {error}");
    let other = apart(stasis, "other")?;
    starts_cold(stasis, &other, &image("image"), "would not run here")?;
    ensure!(
        proxy.passed() < SMALL_DOCUMENTS,
        "its contents were fetched"
    );
    let left = stasis.run_for_text(&["ls", "-A", "/images", PULLED])?;
    ensure!(
        !left.contains("sha256-") && !left.contains(".stasis-pull"),
        "{left}"
    );
    stasis.inject("")
}

/// A digest names one image of its repository: another team's repository has none of this digest.
fn it_is_named_by_its_digest(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let shown = [PROGRAM, "inspect", "--json", &image("image")];
    let shown = listed(stasis.run_for_text(&shown)?.as_bytes())?;
    let digest = shown[0]["digest"].as_str().context("no digest")?;
    job.begin_with(&format!("localhost:{BREAKING}/{REPOSITORY}@{digest}"))?;
    job.create()?;
    is_created(job)?;
    job.start()?;
    ensure!(asked(stasis, &job.id)? == "ok 1");
    job.delete()?;
    let other = format!("localhost:{BREAKING}/jobs/blue/one@{digest}");
    starts_cold(stasis, job, &other, "has no image")
}

fn in_pod_of(job: &Bundle<'_>, namespace: &str) -> Result<()> {
    job.annotate("io.kubernetes.cri.sandbox-namespace", namespace)
}

fn starts_cold(stasis: &StasisHost, job: &Bundle<'_>, image: &str, why: &str) -> Result<()> {
    let case = || format!("{image}: {why}");
    job.begin_with(image)?;
    job.create().with_context(case)?;
    assert_contains(&job.warnings()?, &["started cold", why]);
    let notes = stasis.last_operation()?["notes"].to_string();
    assert_contains(&notes, &["started cold", why]);
    job.start().with_context(case)?;
    let said = asked(stasis, &job.id).with_context(case)?;
    ensure!(said == "ok 0", "{said}");
    job.delete()
}
