//! `stasis images` and `stasis verify`.

use std::fs;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::StasisHost;

use super::{cells, json, run};

const HEADER: [&str; 7] = [
    "IMAGE",
    "CONTAINER",
    "CREATED",
    "GPU MEMORY",
    "FILES",
    "CONTENTS",
    "RESTORABLE",
];

/// Two images, one of them damaged in a place that only a complete read finds.
pub(crate) fn images_are_listed_and_verified(stasis: &StasisHost) -> Result<()> {
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "48", "10007"])?;
    job.comes_up(10007, "ok 0")?;
    let paths = ["whole", "damaged"].map(|name| job.image(name));
    for name in ["whole", "damaged"] {
        job.checkpoint(name, &["--leave-running"])?;
    }
    damage(stasis, &paths[1])?;

    // containerd has moved the images of its checkpoints elsewhere: they are not listed.
    let (code, rows) = json(stasis, &["images"])?;
    assert_eq!(code, Some(0));
    let images: Vec<_> = rows.iter().map(|row| row["image"].clone()).collect();
    assert_eq!(images, paths);
    let (_, stdout, stderr) = run(stasis, &["images"])?;
    assert_eq!(stderr, "");
    let table = cells(&stdout);
    assert_eq!(table[0], HEADER);
    for (row, cells) in rows.iter().zip(&table[1..]) {
        assert_eq!(row["restorable"], true);
        assert_eq!(row["manifest"]["container"], "job");
        assert!(row["bytes"].as_u64() > Some(48 << 20), "{row}");
        let created = row["manifest"]["created"].as_str();
        let path = row["image"].as_str().unwrap_or_default();
        assert_eq!(cells[..2], [path, "job"]);
        assert_eq!(Some(cells[2]), created);
        assert_eq!(cells[5..], ["in the image", "yes"]);
    }

    let (code, rows) = json(stasis, &["verify"])?;
    assert_eq!(code, Some(1));
    let found: Vec<Value> = rows.iter().map(|row| row["kind"].clone()).collect();
    assert_eq!(found, [Value::Null, "image-damaged".into()]);
    let (code, stdout, _) = run(stasis, &["verify"])?;
    assert_eq!(code, Some(1));
    let reason = format!("{}: its GPU contents are damaged in 1 places", paths[1]);
    assert_contains(&stdout, &["WHOLE", "image-damaged", &reason]);
    let (code, _) = json(stasis, &["verify", &paths[0]])?;
    assert_eq!(code, Some(0));
    let (_, rows) = json(stasis, &["verify", "job"])?;
    assert_eq!(rows[0]["image"], paths[1], "the last one");
    let none = "mkdir /images/hello; echo hello > /images/hello/inventory.img";
    stasis.run(&["sh", "-ec", none])?;
    let (code, rows) = json(stasis, &["verify", "/images/hello"])?;
    assert_eq!((code, &rows[0]["kind"]), (Some(1), &"image-damaged".into()));
    let (code, rows) = json(stasis, &["verify", "/images/none"])?;
    assert_eq!(
        (code, rows[0]["restorable"].as_bool()),
        (Some(1), Some(false))
    );
    assert_eq!(rows[0]["kind"], "image-directory");
    job.delete()
}

/// Flips a bit in the middle of the image's largest pack.
fn damage(stasis: &StasisHost, image: &str) -> Result<()> {
    let files = fs::read_dir(stasis.path(image))?;
    let packs = files.filter_map(|file| {
        let path = file.ok()?.path();
        let is_pack = path.extension().is_some_and(|ending| ending == "pack");
        is_pack.then(|| Some((fs::metadata(&path).ok()?.len(), path)))?
    });
    let (length, pack) = packs.max().context("no pack")?;
    let file = fs::File::options().read(true).write(true).open(pack)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, length / 2)?;
    Ok(file.write_all_at(&[byte[0] ^ 1], length / 2)?)
}
