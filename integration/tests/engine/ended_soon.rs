//! An image whose processes end as soon as they go on is passed over by the third container.

use anyhow::{Context, Result};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::memory_container::flip_bit_of_a_pack;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(an_image_that_crashes_is_passed_over: sid_v2, trixie);

mod damaged {
    stasis_integration::on_hosts!(super::an_image_that_no_start_can_load_is_passed_over: sid_v2);
}

const KEY: &str = "/images/job-images";

fn an_image_that_crashes_is_passed_over(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    let crashes = "while [ ! -e /crash ]; do :; done; exit 1";
    let job = &Bundle::make(stasis, "job", &["/bin/sh", "-c", crashes])?;
    job.change(|spec| spec["linux"]["devices"] = json!([]))?;
    job.run()?;
    job.checkpoint("images/1", &[])?;
    job.delete()?;
    let twice = format!("cp -a {KEY}/1 {KEY}/2");
    stasis.run(&["sh", "-ec", &twice])?;
    job.begin_with("latest:job-images")?;
    // An end by the caller's signal does not count.
    for signal in ["TERM", "KILL"] {
        begins_with(stasis, job, "2").context(signal)?;
        job.start()?;
        job.kill(signal)?;
        job.delete()?;
    }
    let crash = format!("{}/rootfs/crash", job.directory());
    stasis.write(&crash, "")?;
    for image in ["2", "2", "1", "1"] {
        let notes = begins_with(stasis, job, image)?;
        if image == "1" {
            let passed_over = format!("{KEY}/2 is passed over, and {KEY}/1 taken in its place");
            assert_contains(&notes, &[&passed_over, "within a minute"]);
        }
        job.start()?;
        has_crashed(job)?;
    }
    let why = [
        "started cold",
        "/images/job-images/2",
        "within a minute",
        ".ended-soon",
    ];
    job.create()?;
    assert_contains(&job.warnings()?, &why);
    job.start()?;
    has_crashed(job)?;
    // Also an image that the container names.
    job.begin_with("job-images/1")?;
    job.create()?;
    assert_contains(
        &job.warnings()?,
        &["started cold", "job-images/1", "within a minute"],
    );
    job.delete()?;
    stasis.run(&["rm", &format!("{KEY}/.ended-soon")])?;
    begins_with(stasis, job, "1")?;
    job.delete()?;
    stasis.nothing_to_put_right()
}

/// A create does not read GPU contents.
fn an_image_that_no_start_can_load_is_passed_over(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    let job = &Bundle::make(stasis, "job", &["/bin/memcheck", "4", "10000"])?;
    job.run()?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 0");
    job.checkpoint("images/1", &[])?;
    job.delete()?;
    stasis
        .host
        .run(&["cp", "-a", &format!("{KEY}/1"), &format!("{KEY}/2")])?;
    flip_bit_of_a_pack(&stasis.host.path(format!("{KEY}/2")))?;
    job.begin_with("latest:job-images")?;
    for _ in 0..2 {
        begins_with(stasis, job, "2")?;
        let failed = job.start().err().context("it was started")?;
        assert_contains(&failed.to_string(), &["image-damaged"]);
        job.delete()?;
    }
    begins_with(stasis, job, "1")?;
    job.start()?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 1");
    job.delete()?;
    stasis.nothing_to_put_right()
}

/// Creates the container, which begins with this image. Returns the operation's notes.
fn begins_with(stasis: &StasisHost, job: &Bundle<'_>, image: &str) -> Result<String> {
    job.create()?;
    assert_eq!(job.warnings()?, "");
    let created = stasis.last_operation()?;
    assert_eq!(created["image_path"], format!("{KEY}/{image}"), "{created}");
    Ok(created["notes"].to_string())
}

fn has_crashed(job: &Bundle<'_>) -> Result<()> {
    wait_until_clear(|| Ok(Some(job.status()?).filter(|status| status != "stopped")))?;
    job.delete()
}
