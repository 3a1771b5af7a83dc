//! Images in a registry by their digests, shown without being fetched, as checkpoints of another
//! image, and with no room for the gathered blobs.

use anyhow::{Result, ensure};
use serde_json::Value;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::moved;
use super::refused::{INTO, fails};

/// The directory in which blobs for a registry are gathered.
const GATHERED: &str = "/var/tmp";
/// Less room than an image needs.
const ROOM: u64 = 16 << 20;

/// `tagged` names an image in the registry, in which `first` and `second` are.
pub(super) fn an_image_is_named_by_its_digest_and_shown(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    tagged: &dyn Fn(&str) -> String,
) -> Result<()> {
    let shown = inspected(stasis, &tagged("second"))?;
    let digest = shown["digest"].as_str().unwrap_or_default().to_owned();
    let repository = tagged("second").replace(":second", "");
    let by_digest = format!("{repository}@{digest}");
    let again = inspected(stasis, &by_digest)?;
    ensure!(again["image"] == by_digest.as_str(), "{again}");
    for field in ["digest", "bytes", "gpu_bytes", "blobs", "annotations"] {
        ensure!(again[field] == shown[field], "{field}: {again}");
    }
    ensure!(shown["blobs"] == 2 && shown["archive"] == false, "{shown}");
    let pulled = moved(stasis, &["pull", &by_digest, INTO])?;
    ensure!(pulled["digest"] == digest.as_str(), "{pulled}");
    is_noted(stasis, INTO, "/origin/pulled/reference", &by_digest)?;
    is_noted(
        stasis,
        &job.image("second"),
        "/origin/pushed/0/digest",
        &digest,
    )?;
    stasis.run(&["rm", "-r", INTO])?;
    let (kind, error) = fails(stasis, &["push", &by_digest, &job.image("second")])?;
    ensure!(
        kind == "image-directory" && error.contains("name a tag"),
        "{error}"
    );
    a_checkpoint_belongs_to_an_image(stasis, job, tagged)?;
    no_room_is_told(stasis, job, tagged)
}

fn a_checkpoint_belongs_to_an_image(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    tagged: &dyn Fn(&str) -> String,
) -> Result<()> {
    let first = inspected(stasis, &tagged("first"))?;
    let image = job.image("second");
    let push = |subject: &str| -> Vec<String> {
        let words = ["push", "--subject", subject, &tagged("third"), &image];
        words.map(str::to_owned).into()
    };
    for subject in ["first", first["digest"].as_str().unwrap_or_default()] {
        let words = push(subject);
        moved(
            stasis,
            &words.iter().map(String::as_str).collect::<Vec<_>>(),
        )?;
        let third = inspected(stasis, &tagged("third"))?;
        ensure!(third["subject"] == first["digest"], "{third}");
    }
    let words = push("none");
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (kind, error) = fails(stasis, &words)?;
    ensure!(
        kind == "image-directory" && error.contains("none"),
        "{error}"
    );
    Ok(())
}

/// The tag is unchanged, and none of the gathered blobs is left.
fn no_room_is_told(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    tagged: &dyn Fn(&str) -> String,
) -> Result<()> {
    stasis.host.mount_memory(ROOM, GATHERED)?;
    let reference = tagged("first").replace(":first", "-other:first");
    let (kind, error) = fails(stasis, &["push", &reference, &job.image("first")])?;
    ensure!(
        kind == "no-space" && error.contains(GATHERED),
        "{kind}: {error}"
    );
    let left = stasis.run_for_text(&["ls", "-A", GATHERED])?;
    ensure!(left.is_empty(), "{left} is left");
    stasis.run(&["umount", GATHERED])?;
    let (kind, error) = fails(stasis, &["inspect", &reference])?;
    ensure!(kind == "image-directory", "{kind}: {error}");
    Ok(())
}

/// Checks that the image's origin, or its destination, is noted.
fn is_noted(stasis: &StasisHost, image: &str, at: &str, expected: &str) -> Result<()> {
    let shown = stasis.run_for_text(&[PROGRAM, "images", image, "--json"])?;
    let shown = listed(shown.as_bytes())?.remove(0);
    ensure!(
        shown.pointer(at).is_some_and(|found| found == expected),
        "{shown}"
    );
    Ok(())
}

fn inspected(stasis: &StasisHost, reference: &str) -> Result<Value> {
    let shown = [PROGRAM, "inspect", reference, "--json"];
    Ok(listed(stasis.run_for_text(&shown)?.as_bytes())?.remove(0))
}
