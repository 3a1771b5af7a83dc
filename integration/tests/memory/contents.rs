//! The places of GPU contents: in the image, or apart from it in one directory of the node, on a
//! disk or on a tmpfs; and images that lack their contents.

mod by_engines;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{Contents, DISK, IN_MEMORY, MEMORY, ON_DISK};
use stasis_integration::container::memory_container::names_in;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

const PORT: u16 = 10000;

#[test]
fn contents_are_where_the_settings_say() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    let gpu = Bundle::make(&stasis, "gpu", &["/bin/memcheck", "48"])?;
    gpu.run()?;
    stasis.ask_until_up(PORT)?;
    what_is_missing_is_named(&stasis, &gpu)?;
    for place in [Contents::OnDisk, Contents::InMemory] {
        apart_from_the_image(&stasis, &gpu, place).with_context(|| format!("{place:?}"))?;
    }
    a_full_disk_changes_nothing(&stasis, &gpu)?;
    gpu.delete()
}

fn goes_on(stasis: &StasisHost) -> Result<()> {
    let answer = stasis.ask(PORT)?;
    let answer = answer.context("it does not answer")?;
    ensure!(answer.starts_with("ok "), "{answer}");
    Ok(())
}

fn pack_in(directory: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_pack = path.extension().is_some_and(|end| end == "pack");
        if is_pack {
            return Ok(path);
        }
    }
    bail!("no pack is in {}", directory.display())
}

fn asked(stasis: &StasisHost, arguments: &[&str]) -> Result<(Option<i32>, Vec<Value>)> {
    let output = stasis.command(PROGRAM).args(arguments).output()?;
    let rows = listed(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((output.status.code(), rows))
}

/// Incomplete images, or ones whose plugin is gone, are refused before anything is started.
fn what_is_missing_is_named(stasis: &StasisHost, gpu: &Bundle<'_>) -> Result<()> {
    gpu.checkpoint("whole", &[])?;
    stasis.set("runc", "gpu_contents.plugin = \"/nowhere.so\"\n")?;
    let message = gpu.restore_fails("whole")?;
    assert_contains(&message, &["/nowhere.so", "make install"]);
    stasis.set("runc", "")?;
    let index = gpu.image_path("whole").join("stasis-memory.index");
    for file in [pack_in(&gpu.image_path("whole"))?, index.clone()] {
        let aside = file.with_extension("aside");
        fs::rename(&file, &aside)?;
        let name = file.file_name().context("no name")?.to_string_lossy();
        let message = gpu.restore_fails("whole")?;
        assert_contains(&message, &[&name, "nothing was changed"]);
        fs::rename(&aside, &file)?;
    }
    gpu.restore("whole")?;
    goes_on(stasis)?;

    // The directory is used again, without the plugin: nothing of the old image must stay.
    stasis.set("runc", "gpu_contents.plugin = \"/nowhere.so\"\n")?;
    gpu.checkpoint("whole", &[])?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_contains(&notes, &["/nowhere.so"]);
    ensure!(!index.exists() && pack_in(&gpu.image_path("whole")).is_err());
    gpu.restore("whole")?;
    goes_on(stasis)?;
    stasis.set("runc", "")
}

/// Image and contents have one id, which both name; they are searched for nowhere else.
fn apart_from_the_image(stasis: &StasisHost, gpu: &Bundle<'_>, place: Contents) -> Result<()> {
    let parent = place.directory().context("no directory")?;
    stasis.set("runc", place.setting())?;
    gpu.checkpoint("goes-on", &["--leave-running"])?;
    goes_on(stasis)?;
    gpu.checkpoint("ends", &[])?;
    gpu.delete()?;
    for image in ["goes-on", "ends"] {
        let path = gpu.image_path(image);
        ensure!(pack_in(&path).is_err(), "{image} has packs of its own");
        let (_, rows) = asked(stasis, &["images", "--json", &gpu.image(image)])?;
        let id = rows[0]["manifest"]["memory"]["image_id"]
            .as_str()
            .context("no id")?;
        let contents = format!("{parent}/{id}");
        ensure!(
            rows[0]["manifest"]["memory"]["packs_in"] == "directory",
            "{rows:?}"
        );
        ensure!(rows[0]["contents"] == contents.as_str(), "{rows:?}");
        pack_in(&stasis.path(&contents))?;
        let text = stasis.run_for_text(&[PROGRAM, "verify", &gpu.image(image)])?;
        assert_contains(&text, &[parent, "yes"]);

        let aside = format!("{parent}.aside");
        stasis.run(&["mv", &contents, &aside])?;
        let says = [id, parent, "gpu_contents.directory", "nothing was changed"];
        assert_contains(&gpu.restore_fails(image)?, &says);
        let (code, rows) = asked(stasis, &["verify", "--json", &gpu.image(image)])?;
        ensure!(
            code == Some(1) && rows[0]["kind"] == "memory-missing",
            "{rows:?}"
        );
        stasis.run(&["mv", &aside, &contents])?;
        stasis.set("runc", "")?;
        let says = [id, "gpu_contents.directory is empty", "nothing was changed"];
        assert_contains(&gpu.restore_fails(image)?, &says);
        stasis.set("runc", place.setting())?;
        gpu.restore(image)?;
        goes_on(stasis)?;
        if image == "goes-on" {
            gpu.delete()?;
        }
    }
    Ok(())
}

fn a_full_disk_changes_nothing(stasis: &StasisHost, gpu: &Bundle<'_>) -> Result<()> {
    stasis.set("runc", ON_DISK)?;
    stasis.host.mount_disk(16 << 20, DISK)?;
    let message = gpu.checkpoint_fails("full", &[])?;
    let says = ["refused [no-space]", DISK, "nothing was changed"];
    assert_contains(&message, &says);
    let settings = format!("{ON_DISK}preflight.disk_space = \"ignore\"\n");
    stasis.set("runc", &settings)?;
    for options in [&[][..], &["--leave-running"]] {
        let message = gpu.checkpoint_fails("full", options)?;
        assert_contains(&message, &["[no-space]", "runs on as before"]);
        goes_on(stasis)?;
        let left = names_in(&stasis.path(DISK))?;
        ensure!(left == ["lost+found"], "{left:?}");
        ensure!(!gpu.image_path("full").join("stasis-memory.index").exists());
    }
    stasis.processes_at_rest()?;
    stasis.run(&["umount", DISK])?;
    stasis.set("runc", "")
}

/// Only `stasis gc --contents --yes` removes contents whose image cannot be found, and none that a
/// process uses.
#[test]
fn contents_without_an_image_stay_until_somebody_says_so() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let gpu = Bundle::make(stasis, "gpu", &["/bin/memcheck", "24"])?;
    gpu.run()?;
    stasis.ask_until_up(PORT)?;
    gpu.checkpoint("gone", &["--leave-running"])?;
    goes_on(stasis)?;
    gpu.checkpoint("replaced", &["--leave-running"])?;
    goes_on(stasis)?;
    gpu.checkpoint("replaced", &[])?;
    stasis.run(&["rm", "-r", &gpu.image("gone")])?;
    let stored = || names_in(&stasis.path(MEMORY));
    let all = stored()?;
    ensure!(all.len() == 3, "{all:?}");
    for options in [&["gc"][..], &["gc", "--yes"], &["gc", "--contents"]] {
        let text = stasis.run_for_text(&[&[PROGRAM], options].concat())?;
        let says = [
            "their image is not where it was written",
            "another image is where theirs was written",
        ];
        assert_contains(&text, &says);
        ensure!(stored()? == all, "{options:?}: {:?}", stored()?);
    }
    let (code, rows) = asked(
        stasis,
        &["gc", "--contents", "--yes", "--older-than", "1h", "--json"],
    )?;
    ensure!(
        code == Some(0) && rows.is_empty() && stored()? == all,
        "{rows:?}"
    );
    // The image that a restore uses is not where it was written.
    let moved = gpu.image("moved");
    stasis.run(&["mv", &gpu.image("replaced"), &moved])?;
    stasis.hold_driver("restore gpu", "restoring")?;
    let restore = gpu.begin_restore("moved")?;
    stasis.until_driver_is_called()?;
    let (code, rows) = asked(stasis, &["gc", "--contents", "--yes", "--json"])?;
    let results: Vec<_> = rows.iter().map(|row| row["result"].as_str()).collect();
    let used = results.iter().filter(|result| **result == Some("in-use"));
    ensure!(code == Some(1) && used.count() == 1, "{rows:?}");
    ensure!(stored()?.len() == 1, "{:?}", stored()?);
    stasis.let_driver_go("restoring")?;
    let output = restore.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    goes_on(stasis)?;
    gpu.delete()?;
    asked(stasis, &["gc", "--contents", "--yes", "--json"])?;
    ensure!(stored()?.is_empty(), "{:?}", stored()?);
    Ok(())
}
