//! docs/create.md as written, with podman and a registry: a job is saved when it is stopped, others
//! begin with its image. Then the archive of docs/commands.md goes through the same registry.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::HostKind;
use stasis_integration::host::docker_registry::PORT as REGISTRY_PORT;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::node::{ARCHIVE, IMAGE, has_a_gpu, has_an_image};
use super::{blocks, page, run};

const TITLE: &str = "Containers that begin with an image";
const OF_A_REGISTRY: &str = "An image of a registry";
const AT_A_STOP: &str = "Checkpointed instead of lost";
const ELSEWHERE: &str = "Preempted here, going on there";
const ARCHIVES: &str = "stasis push, stasis pull";
const PORT: u16 = 10000;
const IMAGES: &str = "/var/lib/stasis/images";
/// "user:secret"
const PASSWORD: &str = "dXNlcjpzZWNyZXQ=";

on_hosts!(every_block_does_what_is_said: sid_v2);

fn every_block_does_what_is_said(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let page = page("docs/create.md")?;
    let stasis = &StasisHost::of(kind)?;
    has_a_gpu(&stasis.host)?;
    has_an_image(&stasis.host)?;
    stasis.podman(&["load", "-q", "-i", ARCHIVE])?;
    let _registry = stasis.host.docker_registry(&[])?;
    let password = format!(
        "{{\"auths\":{{\"{}\":{{\"auth\":\"{PASSWORD}\"}}}}}}",
        registry()
    );
    stasis.write("/root/.docker/config.json", &password)?;
    let [job, settings] = blocks(&page, AT_A_STOP)?;
    let (start, stop) = job.split_once("podman stop").context("no stop")?;
    let (start, stop) = (here(start), format!("podman stop{stop}"));

    stasis.set(kind.low_level, &settings)?;
    run(stasis, &start)?;
    counts(stasis, "101")?;
    run(stasis, &stop)?;
    counts(stasis, "102")?;
    stasis.podman_remove("job")?;

    let [next, settings] = blocks(&page, TITLE)?;
    let next = here(&next);
    stasis.set(kind.low_level, &settings)?;
    begins(stasis, &next)?;
    let [settings] = blocks(&page, OF_A_REGISTRY)?;
    stasis.set(kind.low_level, &here(&settings))?;
    let pushed = format!("{}/jobs/llama/one:1", registry());
    let push = format!("{PROGRAM} push {pushed} {IMAGES}/job/*-stop");
    run(stasis, &push)?;
    begins(stasis, &next.replace("latest:job", &pushed))?;

    let [settings] = blocks(&page, ELSEWHERE)?;
    stasis.set(kind.low_level, &here(&settings))?;
    run(stasis, &start)?;
    counts(stasis, "102")?;
    run(stasis, "podman stop -t 120 job")?;
    goes_on_where_nothing_of_it_was(stasis)?;
    archive_is_restored_from_the_registry(stasis)
}

fn registry() -> String {
    format!("localhost:{REGISTRY_PORT}")
}

/// Puts in what a reader has to put in.
fn here(block: &str) -> String {
    let gpu = "--network host --device nvidia.com/gpu=all";
    let block = block.replace("registry.example", &registry());
    block.replace("$GPU", gpu).replace("IMAGE", IMAGE)
}

fn counts(stasis: &StasisHost, expected: &str) -> Result<()> {
    let answer = stasis.ask_until_up(PORT)?;
    let notes = stasis
        .operation("create")
        .map(|mut line| line["notes"].take());
    ensure!(answer == expected, "{answer}, not {expected}: {notes:?}");
    Ok(())
}

/// Runs `next`, which has to begin with the image of the first stop.
fn begins(stasis: &StasisHost, next: &str) -> Result<()> {
    run(stasis, next)?;
    counts(stasis, "102").with_context(|| next.to_owned())?;
    stasis.podman_remove("next")
}

fn goes_on_where_nothing_of_it_was(stasis: &StasisHost) -> Result<()> {
    wait_until_clear(|| {
        let pushed = stasis.operation("push").is_ok();
        Ok((!pushed).then(|| "the image of the stop is not pushed".to_owned()))
    })?;
    let log = stasis.operation("push")?;
    ensure!(log.get("error").is_none(), "{log}");
    stasis.run(&["rm", "-r", IMAGES])?;
    run(stasis, "podman start job")?;
    counts(stasis, "103")
}

fn archive_is_restored_from_the_registry(stasis: &StasisHost) -> Result<()> {
    let [block] = blocks(&page("docs/commands.md")?, ARCHIVES)?;
    let block = here(&block);
    let (here, there) = block.split_once("stasis pull").context("no pull")?;
    run(stasis, here)?;
    run(stasis, "podman rm job; rm job.tar")?;
    run(stasis, &format!("stasis pull{there}"))?;
    counts(stasis, "104")?;
    stasis.podman_remove("job")
}
