//! Whole images that this machine, this version of stasis or its settings do not restore.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::image_files::{manifest, unlist};
use stasis_integration::host::installed::StasisHost;

use super::{Change, DRIVER, asked, changed, is_unknown, is_whole, refused, restorable};

pub(super) fn other_versions(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image_path("image");
    let path = image.join("stasis.json");
    for version in [4, 99] {
        let other = |path: &Path| {
            let mut manifest = manifest(&image)?;
            manifest["version"] = version.into();
            Ok(fs::write(path, manifest.to_string())?)
        };
        changed(&path, other, || refused(stasis, job, "image-version"))?;
    }
    changed(
        &path,
        |_| unlist(&image),
        || {
            is_unknown(stasis, &job.image("image"), "does not list its files")?;
            // The file that CRIU writes last is needed all the same.
            let inventory = image.join("inventory.img");
            let missing = |path: &Path| Ok(fs::write(path, "")?);
            changed(&inventory, missing, || {
                refused(stasis, job, "image-damaged")
            })
        },
    )
}

/// Each machine, and the kind by which both refuse the image.
pub(super) fn other_machines(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let cases = [
        (format!("gpus 1\n{DRIVER}"), "no-gpu"),
        (
            format!("gpus 2\n{DRIVER}\nmemory 65 0\nmemory 65 1"),
            "no-gpu-memory",
        ),
        (format!("gpus 2\n{DRIVER}\nmig 0"), "mig"),
        (
            format!("gpus 2\n{DRIVER}\npersistence-off 0"),
            "no-persistence",
        ),
        ("gpus 2\ndriver 570.211.01".to_owned(), "other-driver"),
    ];
    for (machine, kind) in cases {
        stasis.inject(&machine)?;
        refused(stasis, job, kind).context(machine)?;
    }
    stasis.inject("gpus 2\ndriver 580.105.08")?;
    let (_, report) = asked(stasis, &["images", "--json", &job.image("image")])?;
    ensure!(report["restorable"] == true, "{report}");
    ensure!(
        report["notes"][0]
            .to_string()
            .contains("other driver libraries"),
        "{report}"
    );
    is_whole(stasis, job)?;
    stasis.inject(&format!("gpus 2\n{DRIVER}"))
}

pub(super) fn who_may_be_restored(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let path = stasis.path("/etc/stasis/stasis.toml");
    let settings = fs::read_to_string(&path)?;
    let allow = |directory: &str| {
        let allowed = format!("{settings}\nrestore.images = [\"{directory}\"]\n");
        fs::write(&path, allowed)
    };
    allow("/root")?;
    refused(stasis, job, "image-not-allowed")?;
    allow(&job.image("image"))?;
    restorable(stasis, job)?;
    let for_group: Change = |path| Ok(fs::set_permissions(path, Permissions::from_mode(0o660))?);
    changed(
        &job.image_path("image").join("inventory.img"),
        for_group,
        || refused(stasis, job, "image-not-allowed"),
    )?;
    Ok(fs::write(&path, &settings)?)
}
