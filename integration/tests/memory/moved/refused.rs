//! The other place has something else than it claims, or there is no room: refused with a kind, and
//! only verified files are left.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::container::memory_container::names_in;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::layout::Layout;
use super::moved;

/// The directory of the pulled image.
pub(super) const INTO: &str = "/images/pulled-elsewhere";
/// The directory in which the image grows until it is whole.
pub(super) const STAGING: &str = "/images/.pulled-elsewhere.stasis-pull";
const SMALL: &str = "/images/small";
const NOTHING: &str = "nothing was fetched";

pub(super) fn what_is_not_an_image_is_refused(
    stasis: &StasisHost,
    layout: &Layout<'_>,
) -> Result<()> {
    a_damaged_blob_is_not_pulled(stasis, layout)?;
    a_manifest_that_lies_is_refused(stasis, layout)?;
    a_part_of_a_layout_is_refused(stasis, layout)
}

/// Verified blobs are not fetched again.
fn a_damaged_blob_is_not_pulled(stasis: &StasisHost, layout: &Layout<'_>) -> Result<()> {
    let memory = layout.memory("second")?;
    ensure!(memory.len() == 2, "{memory:?}");
    let last = layout.blob(&memory[1]);
    let good = fs::read(&last)?;
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    for (bytes, what) in [(&damaged[..], "another digest"), (&good[1..], "bytes")] {
        fs::write(&last, bytes)?;
        let (kind, error) = pull_fails(stasis, &layout.tagged("second"), INTO)?;
        ensure!(kind == "image-damaged" && error.contains(what), "{error}");
        ensure!(error.contains(&memory[1]), "{error}");
        let left = names_in(&stasis.path(STAGING))?;
        let is_verified = |name: &String| name.ends_with(".pack");
        ensure!(
            left.len() > 1 && left.iter().all(is_verified),
            "{left:?} is left"
        );
    }
    fs::write(&last, good)?;
    let pulled = moved(stasis, &["pull", &layout.tagged("second"), INTO])?;
    ensure!(pulled["moved_blobs"] == 1, "{pulled}");
    is_not_there(stasis, &[STAGING])?;
    stasis.run(&["rm", "-r", INTO]).map(drop)
}

fn a_manifest_that_lies_is_refused(stasis: &StasisHost, layout: &Layout<'_>) -> Result<()> {
    let manifest = layout.manifest("second")?;
    let set = |pointer: &str, value: Value| -> Result<Value> {
        let mut changed = manifest.clone();
        *changed.pointer_mut(pointer).context("no such field")? = value;
        Ok(changed)
    };
    let other = json!("application/vnd.example.other.v1");
    let config = manifest["config"]["digest"].clone();
    for (forged, kind) in [
        (set("/artifactType", other.clone())?, "unsupported"),
        (set("/layers/0/mediaType", other)?, "image-damaged"),
        (set("/layers/0/digest", config)?, "image-damaged"),
        (set("/layers/0/size", json!(1))?, "image-damaged"),
        (
            set("/layers/0/digest", json!("sha256:../../etc/passwd"))?,
            "image-damaged",
        ),
        (set("/config/size", json!(u64::MAX))?, "image-damaged"),
    ] {
        layout.forge("forged", &forged)?;
        let (told, error) = pull_fails(stasis, &layout.tagged("forged"), INTO)?;
        ensure!(told == kind, "{told}: {error}");
        is_not_there(stasis, &[STAGING])?;
        moved_on(layout)?;
    }
    Ok(())
}

/// Removes the forged tag.
fn moved_on(layout: &Layout<'_>) -> Result<()> {
    let path = layout.path("index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path)?)?;
    index["manifests"]
        .as_array_mut()
        .context("no manifests")?
        .pop();
    Ok(fs::write(path, index.to_string())?)
}

fn a_part_of_a_layout_is_refused(stasis: &StasisHost, layout: &Layout<'_>) -> Result<()> {
    let manifest = layout.manifest("second")?;
    let config = manifest["config"]["digest"].as_str().context("no config")?;
    let memory = layout.memory("second")?;
    for (lost, kind) in [
        (layout.blob(config), "image-damaged"),
        (layout.blob(&memory[1]), "image-damaged"),
        (layout.path("index.json"), "image-directory"),
        (layout.path("oci-layout"), "image-directory"),
        (layout.path("blobs"), "image-directory"),
    ] {
        let aside = lost.with_extension("aside");
        fs::rename(&lost, &aside)?;
        let (told, error) = pull_fails(stasis, &layout.tagged("second"), INTO)?;
        ensure!(told == kind, "{told}: {error}");
        is_not_there(stasis, &[STAGING])?;
        fs::rename(aside, lost)?;
    }
    let index = fs::read(layout.path("index.json"))?;
    fs::write(layout.path("index.json"), &index[..index.len() / 2])?;
    let (kind, error) = pull_fails(stasis, &layout.tagged("second"), INTO)?;
    ensure!(kind == "image-damaged", "{error}");
    Ok(fs::write(layout.path("index.json"), index)?)
}

pub(super) fn a_full_disk_is_told(
    stasis: &StasisHost,
    layout: &Layout<'_>,
    image: &str,
) -> Result<()> {
    no_room_is_noticed(stasis, layout)?;
    no_room_for_an_archive(stasis, layout, image)?;
    stasis.host.mount_memory(32 << 20, SMALL)?;
    let error = no_space(stasis, &layout.tagged("second"), "pulled")?;
    ensure!(error.contains(NOTHING), "{error}");
    let there = Layout::at(stasis, "/images/small/layout");
    let (kind, error) = fails(stasis, &["push", &there.tagged("job"), image])?;
    ensure!(
        kind == "no-space" && error.contains(SMALL),
        "{kind}: {error}"
    );
    ensure!(!there.path("index.json").exists(), "a tag was written");
    let left = names_in(&there.path("blobs/sha256"))?;
    ensure!(left.iter().all(|name| name.len() == 64), "{left:?} is left");
    stasis.run(&["umount", SMALL]).map(drop)
}

/// There is room for the bytes, and for a few files.
fn no_room_is_noticed(stasis: &StasisHost, layout: &Layout<'_>) -> Result<()> {
    stasis.host.mount_memory(512 << 20, SMALL)?;
    let few = ["mount", "-o", "remount,nr_inodes=9", SMALL];
    stasis.host.run(&few)?;
    let error = no_space(stasis, &layout.tagged("second"), "pulled")?;
    ensure!(!error.contains(NOTHING), "{error}");
    // Packs are whole, and are kept for the next pull.
    let left = names_in(&stasis.host.path(format!("{SMALL}/.pulled.stasis-pull")))?;
    let is_pack = |name: &String| name.ends_with(".pack");
    ensure!(
        !left.is_empty() && left.iter().all(is_pack),
        "{left:?} is left"
    );
    stasis.host.run(&["umount", SMALL]).map(drop)
}

/// There is room for the image, and not for the archive that it becomes.
fn no_room_for_an_archive(stasis: &StasisHost, layout: &Layout<'_>, image: &str) -> Result<()> {
    let unpacked = "/images/unpacked";
    let script = format!(
        "mkdir {unpacked}; cp -a {image} {unpacked}/checkpoint; echo '{{}}' >{unpacked}/config.dump"
    );
    stasis.host.run(&["sh", "-ec", &script])?;
    let pushed = moved(stasis, &["push", &layout.tagged("archive"), unpacked])?;
    let bytes = pushed["bytes"].as_u64().context("no bytes")?;
    stasis.host.mount_memory(bytes * 3 / 2, SMALL)?;
    let error = no_space(stasis, &layout.tagged("archive"), "pulled.tar")?;
    ensure!(error.contains(NOTHING), "{error}");
    stasis.host.run(&["umount", SMALL])?;
    stasis.host.run(&["rm", "-r", unpacked]).map(drop)
}

/// Makes a pull into the small file system, which has to fail. Returns the message.
fn no_space(stasis: &StasisHost, reference: &str, into: &str) -> Result<String> {
    let (kind, error) = pull_fails(stasis, reference, &format!("{SMALL}/{into}"))?;
    ensure!(
        kind == "no-space" && error.contains(SMALL),
        "{kind}: {error}"
    );
    Ok(error)
}

/// Makes a pull that has to fail and leave no image. Returns its kind and message.
pub(super) fn pull_fails(
    stasis: &StasisHost,
    reference: &str,
    into: &str,
) -> Result<(String, String)> {
    let failed = fails(stasis, &["pull", reference, into])?;
    is_not_there(stasis, &[into])?;
    Ok(failed)
}

/// Runs `stasis`, which has to fail. Returns the kind and the message.
pub(super) fn fails(stasis: &StasisHost, arguments: &[&str]) -> Result<(String, String)> {
    let mut command = stasis.command(PROGRAM);
    let output = command.args(arguments).arg("--json").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(2), "{}: {text}", output.status);
    let answer: Value = serde_json::from_str(&text).with_context(|| text.into_owned())?;
    ensure!(answer["state"] == "unharmed", "{answer}");
    let [kind, error] = ["kind", "error"].map(|name| answer[name].as_str().map(str::to_owned));
    Ok((kind.context("no kind")?, error.context("no error")?))
}

fn is_not_there(stasis: &StasisHost, paths: &[&str]) -> Result<()> {
    for path in paths {
        let found = stasis.path(Path::new(path)).exists();
        ensure!(!found, "{path} is there");
    }
    Ok(())
}
