//! `stasis inspect`.

use std::fs;

use anyhow::{Context, Result};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::StasisHost;

use super::{json, run};

/// The image of the workload `tree`: eight processes, three of which use the GPU.
pub(crate) fn what_is_in_an_image_is_shown(stasis: &StasisHost) -> Result<()> {
    let job = Bundle::make(stasis, "looked-at", &["/bin/tree", "10008"])?;
    job.run()?;
    stasis.ask_until_up(10008)?;
    job.checkpoint("seen", &["--leave-running"])?;
    let image = job.image("seen");
    let (code, found) = json(stasis, &["inspect", &image])?;
    assert_eq!((code, found.len()), (Some(0), 1));
    let found = &found[0];
    let manifest = job.manifest("seen")?;
    assert_eq!(found["image"], image.as_str());
    assert_eq!(found["container"], manifest["container"]);
    assert_eq!(found["manifest"], manifest);
    let processes = manifest["processes"].as_array().context("no processes")?;
    assert_eq!(processes.len(), 3, "{processes:?}");
    let held = &processes[0]["gpus"][0]["memory_bytes"];
    assert!(found["gpu_bytes"].as_u64() >= held.as_u64(), "{found}");
    assert!(found["bytes"].as_u64() > Some(0), "{found}");

    let (code, stdout, stderr) = run(stasis, &["inspect", "--all", &image])?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let titles = ["PID", "PHASE", "BLAKE3"];
    assert_contains(&stdout, &titles);
    assert_contains(&stdout, &["gpu checkpoint", "pstree.img"]);
    let (_, stdout, _) = run(stasis, &["inspect", &image])?;
    assert!(
        !titles.iter().any(|title| stdout.contains(title)),
        "{stdout}"
    );
    assert_contains(&stdout, &["3 with GPU state", "crit and checkpointctl"]);
    a_damaged_one_is_refused_by_name(stasis, &job)?;
    job.delete()
}

fn a_damaged_one_is_refused_by_name(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let file = job.image_path("seen").join("stasis.json");
    let whole = fs::read(&file)?;
    fs::write(&file, &whole[..whole.len() / 2])?;
    let (code, stdout, stderr) = run(stasis, &["inspect", &job.image("seen")])?;
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_contains(&stderr, &["stasis.json is damaged", "[image-damaged]"]);
    let (code, _, stderr) = run(stasis, &["inspect", "/images/none"])?;
    assert_eq!(code, Some(2));
    assert_contains(
        &stderr,
        &["there is no image in /images/none", "[image-directory]"],
    );
    Ok(())
}

/// The files that podman puts beside the image name its container.
pub(crate) fn an_unpacked_archive_tells_its_name(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("packed", &[], &["/bin/counter", "10009"])?;
    stasis.ask_until_up(10009)?;
    let archive = "/images/packed.tar";
    let export = ["checkpoint", "--compress", "none", "--export", archive];
    stasis.podman_container(&export, "packed")?;
    stasis.podman_remove("packed")?;
    let script = format!("mkdir /images/unpacked && tar -xf {archive} -C /images/unpacked");
    stasis.run(&["sh", "-c", &script])?;
    let (code, found) = json(stasis, &["inspect", "/images/unpacked"])?;
    assert_eq!(code, Some(0));
    assert_eq!(found[0]["image"], "/images/unpacked/checkpoint");
    assert_eq!(
        (&found[0]["name"], &found[0]["engine"]),
        (&json!("packed"), &json!("podman"))
    );
    let made_from = found[0]["container_image"].as_str().context("no image")?;
    assert!(made_from.contains("test"), "{made_from}");
    archives_are_read(stasis, archive)
}

/// Archives are read without being unpacked, and no file is left beside them.
fn archives_are_read(stasis: &StasisHost, archive: &str) -> Result<()> {
    let (code, found) = json(stasis, &["inspect", archive])?;
    assert_eq!((code, &found[0]["name"]), (Some(0), &json!("packed")));
    assert_eq!(found[0]["image"], archive);
    let (code, found) = json(stasis, &["verify", archive])?;
    assert_eq!((code, &found[0]["restorable"]), (Some(0), &json!(true)));
    assert_eq!(found[0]["image"], archive);
    let damage = "echo x >> /images/unpacked/checkpoint/pages-1.img; \
        tar -C /images/unpacked -cf /images/damaged.tar .";
    stasis.run(&["sh", "-ec", damage])?;
    let (code, found) = json(stasis, &["verify", "/images/damaged.tar"])?;
    assert_eq!(
        (code, &found[0]["kind"]),
        (Some(1), &json!("image-damaged"))
    );
    let left = stasis.run_for_text(&["ls", "-A", "/images"])?;
    assert!(
        !left.contains(".packed") && !left.contains(".damaged"),
        "{left}"
    );
    Ok(())
}
