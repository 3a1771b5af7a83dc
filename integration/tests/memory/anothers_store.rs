//! An image that names another image's store.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{DISK, ON_DISK};
use stasis_integration::container::image_files::{manifest, unlist};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::{INDEX_FILE, ImageId, Index};

#[test]
fn an_image_that_names_anothers_store_gets_nothing_of_it() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    stasis.set("runc", ON_DISK)?;
    let theirs = ended(stasis, "theirs", 10000)?;
    let ours = ended(stasis, "ours", 10001)?;
    for forge in [with_id, with_places] {
        let image = ours.image("forged");
        stasis.run(&["rm", "-rf", &image])?;
        stasis.run(&["cp", "-a", &ours.image("image"), &image])?;
        forge(&ours.image_path("forged"), &theirs.image_path("image"))?;
        let message = ours.restore_fails("forged")?;
        assert_contains(&message, &[DISK, "another index"]);
        let failure = ours.failure()?.context("it reports nothing")?;
        ensure!(
            failure.kind.map(|kind| kind.name()) == Some("image-damaged"),
            "{failure:?}"
        );
        ensure!(ours.status()?.is_empty(), "something was restored");
    }
    for (job, port) in [(&ours, 10001), (&theirs, 10000)] {
        job.restore("image")?;
        assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
        job.delete()?;
    }
    Ok(())
}

fn ended<'h>(stasis: &'h StasisHost, id: &str, port: u16) -> Result<Bundle<'h>> {
    let job = Bundle::make(stasis, id, &["/bin/memcheck", "24", &port.to_string()])?;
    job.comes_up(port, "ok 0")?;
    job.checkpoint("image", &[])?;
    Ok(job)
}

fn index(image: &Path) -> Result<Index> {
    Index::read(image)?.context("no index")
}

/// Forges an index with the id alone, which a list of stores or a log shows.
fn with_id(forged: &Path, theirs: &Path) -> Result<()> {
    let (mut ours, theirs) = (index(forged)?, index(theirs)?);
    (ours.image_id, ours.packs) = (theirs.image_id, theirs.packs);
    written(forged, &ours)
}

/// Forges an index with all places, too, and changes the contents to be restored.
fn with_places(forged: &Path, theirs: &Path) -> Result<()> {
    let mut index = index(theirs)?;
    let area = index
        .processes
        .first_mut()
        .and_then(|process| process.areas.last_mut());
    area.context("no area")?.chunks.pop();
    written(forged, &index)
}

fn written(image: &Path, index: &Index) -> Result<()> {
    name(image, index.image_id)?;
    Ok(fs::write(image.join(INDEX_FILE), index.encode())?)
}

fn name(image: &Path, id: ImageId) -> Result<()> {
    unlist(image)?;
    let mut manifest = manifest(image)?;
    manifest["memory"]["image_id"] = id.to_string().into();
    Ok(fs::write(image.join("stasis.json"), manifest.to_string())?)
}
