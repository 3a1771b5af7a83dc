//! `stasis verify --here` reports whether an image would run here, in a new container, too.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::image_files::manifest;
use stasis_integration::host::installed::{DRIVER as LIBRARIES, PROGRAM, StasisHost};

use super::{Change, DRIVER, changed, refused, restorable};

/// For the image of a job of two GPUs that has ended.
pub(super) fn all_that_it_takes_for_granted(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let row = begins(stasis, job)?;
    let mounts = row["expects"]["mounts"].as_array().context("no mounts")?;
    ensure!(mounts.contains(&LIBRARIES.into()), "{row}");
    ensure!(row["expects"]["files"].as_u64() >= Some(2), "{row}");
    ensure!(row["manifest"]["made_on"]["kernel"].is_string(), "{row}");
    other_machines(stasis, job)?;
    another_product(stasis, job)?;
    a_cpu_without_an_instruction(stasis, job)?;
    other_files(stasis, job)?;
    begins(stasis, job).map(drop)
}

fn other_machines(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    for (machine, kind) in [
        (format!("gpus 1\n{DRIVER}"), "no-gpu"),
        (
            format!("gpus 2\n{DRIVER}\nmemory 65 0\nmemory 65 1"),
            "no-gpu-memory",
        ),
        ("gpus 2\ndriver 570.211.01".to_owned(), "other-driver"),
        ("gpus 2\ndriver 580.105.08".to_owned(), "other-driver"),
    ] {
        stasis.inject(&machine)?;
        is_not_for_here(stasis, job, kind).context(machine)?;
    }
    stasis.inject(&format!("gpus 2\n{DRIVER}"))?;
    // The image's needs of CRIU are checked first, as at a restore.
    let criu = stasis.path("/usr/sbin/criu");
    let aside = criu.with_extension("aside");
    fs::rename(&criu, &aside)?;
    let without = is_not_for_here(stasis, job, "no-plugin");
    fs::rename(&aside, &criu)?;
    without
}

/// The image's GPUs are not here, and those that are here are of another product.
fn another_product(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let another: Change = |path| {
        let text = fs::read_to_string(path)?;
        let text = text.replace("GPU-57415349", "GPU-57415350");
        Ok(fs::write(
            path,
            text.replace("stasis stand-in GPU", "Other"),
        )?)
    };
    changed(
        &job.image_path("image").join("stasis.json"),
        another,
        || is_not_for_here(stasis, job, "no-gpu"),
    )
}

fn a_cpu_without_an_instruction(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image_path("image");
    let another: Change = |path| {
        let image = path.parent().context("no image")?;
        let mut manifest = manifest(image)?;
        let cpu = manifest["made_on"]["cpu"].as_array_mut();
        cpu.context("it names no instructions")?
            .push("avx4096f".into());
        Ok(fs::write(path, manifest.to_string())?)
    };
    changed(&image.join("stasis.json"), another, || {
        is_not_for_here(stasis, job, "other-cpu")?;
        refused(stasis, job, "other-cpu")?;
        stasis.set(&stasis.low_level, "restore.cpu = \"ignore\"\n")?;
        restorable(stasis, job)?;
        stasis.set(&stasis.low_level, "")
    })
}

fn other_files(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let program = stasis.path(job.directory()).join("rootfs/bin/memcheck");
    let gone: Change = |path| Ok(fs::remove_file(path)?);
    let longer: Change = |path| {
        let mut bytes = fs::read(path)?;
        bytes.push(0);
        Ok(fs::write(path, bytes)?)
    };
    let aside = program.with_extension("aside");
    for change in [gone, longer] {
        fs::rename(&program, &aside)?;
        fs::copy(&aside, &program)?;
        change(&program)?;
        let judged = is_not_for_here(stasis, job, "file-missing");
        let restored = job.restore_fails("image");
        fs::rename(&aside, &program)?;
        judged.and(restored)?;
    }
    let config = stasis.path(job.directory()).join("config.json");
    let before = fs::read(&config)?;
    job.change(|spec| {
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            mounts.retain(|mount| mount["destination"] != LIBRARIES);
        }
    })?;
    let judged = is_not_for_here(stasis, job, "mount-missing");
    fs::write(config, before)?;
    judged
}

fn here(stasis: &StasisHost, job: &Bundle<'_>) -> Result<(Option<i32>, Value)> {
    let (image, bundle) = (job.image("image"), job.directory());
    let arguments = ["verify", "--here", "--json", "--bundle", &bundle, &image];
    let output = stasis.command(PROGRAM).args(arguments).output()?;
    Ok((output.status.code(), listed(&output.stdout)?.remove(0)))
}

fn begins(stasis: &StasisHost, job: &Bundle<'_>) -> Result<Value> {
    let (code, row) = here(stasis, job)?;
    ensure!(code == Some(0) && row["restorable"] == true, "{row}");
    ensure!(row["refusals"] == json!([]), "{row}");
    Ok(row)
}

fn is_not_for_here(stasis: &StasisHost, job: &Bundle<'_>, kind: &str) -> Result<()> {
    let (code, row) = here(stasis, job)?;
    ensure!(code == Some(1) && row["kind"] == kind, "{kind}: {row}");
    ensure!(row["refusals"][0]["text"].is_string(), "{row}");
    Ok(())
}
