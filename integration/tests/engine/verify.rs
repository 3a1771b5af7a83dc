//! `stasis verify --here` reports of an image what its restore would report, and `stasis verify`
//! whether it is whole; neither changes anything.

mod exchanged;
mod here;
mod not_here;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{Contents, DISK, MEMORY};
use stasis_integration::container::image_files::{contents, manifest};
use stasis_integration::container::memory_container::difference;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use self::not_here::{other_machines, other_versions, who_may_be_restored};

const PORT: u16 = 10000;
const DRIVER: &str = "driver 580.95.05";

#[test]
fn an_image_is_judged_as_its_restore_would() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    for place in Contents::ALL {
        stasis.set("runc", place.setting())?;
        stasis.inject(&format!("gpus 2\n{DRIVER}"))?;
        let job = Bundle::make(
            stasis,
            &format!("of-{place:?}").to_lowercase(),
            &["/bin/memcheck", "48", "10000"],
        )?;
        job.give(&[0, 1])?;
        job.comes_up(PORT, "ok 0")?;
        job.checkpoint("image", &[])?;
        each(stasis, &job).with_context(|| format!("{place:?}"))?;
        if place == Contents::InImage {
            here::all_that_it_takes_for_granted(stasis, &job)?;
        }
        job.restore("image")?;
        assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
        job.delete()?;
    }
    what_is_no_image_is_refused(stasis)
}

fn each(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image_path("image");
    let before = (contents(&image)?, stasis.inventory()?);
    let report = restorable(stasis, job)?;
    assert_eq!(report["manifest"]["container"], job.id.as_str());
    assert_eq!(report["manifest"]["gpus"].as_array().map(Vec::len), Some(2));
    ensure!(report["memory"].is_string(), "{report}");
    files_that_changed(stasis, job)?;
    without_what_vouches_for_it(stasis, job)?;
    memory_that_changed(stasis, job)?;
    other_versions(stasis, job)?;
    other_machines(stasis, job)?;
    who_may_be_restored(stasis, job)?;
    restorable(stasis, job)?;
    assert_eq!(contents(&image)?, before.0, "a check changed the image");
    assert_eq!(difference(&before.1, &stasis.inventory()?), None);
    Ok(())
}

/// Checks an image for this machine. Returns the exit code and the report.
fn check(stasis: &StasisHost, directory: &str) -> Result<(Option<i32>, Value)> {
    asked(stasis, &["verify", "--here", "--json", directory])
}

/// Checks an image's contents alone. Returns the exit code and the report.
fn whole(stasis: &StasisHost, directory: &str) -> Result<(Option<i32>, Value)> {
    asked(stasis, &["verify", "--json", directory])
}

fn asked(stasis: &StasisHost, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
    let output = stasis.command(PROGRAM).args(arguments).output()?;
    Ok((output.status.code(), listed(&output.stdout)?.remove(0)))
}

fn restorable(stasis: &StasisHost, job: &Bundle<'_>) -> Result<Value> {
    is_whole(stasis, job)?;
    let (code, report) = check(stasis, &job.image("image"))?;
    ensure!(code == Some(0) && report["restorable"] == true, "{report}");
    ensure!(
        report["kind"].is_null() && report["refusals"] == json!([]),
        "{report}"
    );
    Ok(report)
}

fn is_whole(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let (code, report) = whole(stasis, &job.image("image"))?;
    ensure!(code == Some(0) && report["restorable"] == true, "{report}");
    Ok(())
}

/// Checks that no command can tell whether the image is whole.
fn is_unknown(stasis: &StasisHost, directory: &str, why: &str) -> Result<()> {
    for (code, report) in [whole(stasis, directory)?, check(stasis, directory)?] {
        ensure!(
            code == Some(1) && report["restorable"].is_null() && report["kind"].is_null(),
            "{report}"
        );
        ensure!(report["notes"][0].to_string().contains(why), "{report}");
    }
    let text = stasis
        .command(PROGRAM)
        .args(["verify", directory])
        .output()?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.contains("unknown") && text.contains(why), "{text}");
    Ok(())
}

/// Checks that the check and the restore refuse the image by the same kind.
fn refused(stasis: &StasisHost, job: &Bundle<'_>, kind: &str) -> Result<()> {
    let (code, report) = check(stasis, &job.image("image"))?;
    ensure!(code == Some(1) && report["kind"] == kind, "{report}");
    let (_, contents) = whole(stasis, &job.image("image"))?;
    match kind {
        "image-damaged" | "memory-missing" | "image-version" | "image-not-allowed" => {
            ensure!(contents["kind"] == kind, "{contents}");
        }
        _ => ensure!(contents["restorable"] == true, "{contents}"),
    }
    job.restore_fails("image")?;
    let failure = job.failure()?.context("it reports nothing")?;
    let restore = failure.kind.map(|kind| kind.name());
    ensure!(restore == Some(kind), "{failure:?}\n{report}");
    Ok(())
}

/// Changes a file during `then`, and puts it back.
fn changed<T>(
    path: &Path,
    change: impl FnOnce(&Path) -> Result<()>,
    then: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let aside = path.with_extension("aside");
    fs::rename(path, &aside)?;
    fs::copy(&aside, path)?;
    let result = change(path).and_then(|()| then());
    fs::rename(&aside, path)?;
    result.with_context(|| path.display().to_string())
}

fn flip(path: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let (mut byte, at) = ([0], file.metadata()?.len() / 2);
    file.read_exact_at(&mut byte, at)?;
    Ok(file.write_all_at(&[byte[0] ^ 1], at)?)
}

/// A change to a file.
type Change = fn(&Path) -> Result<()>;

fn files_that_changed(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image_path("image");
    let shorter: Change = |path| Ok(File::options().write(true).open(path)?.set_len(9)?);
    let fifo: Change = |path| {
        fs::remove_file(path)?;
        Ok(mkfifo(path, Mode::S_IRUSR)?)
    };
    let link: Change = |path| {
        fs::remove_file(path)?;
        Ok(symlink("inventory.aside", path)?)
    };
    let changes: [Change; 4] = [shorter, flip, fifo, link];
    for name in ["inventory.img", "pages-1.img", "stasis-memory.index"] {
        for change in changes {
            let damaged = || refused(stasis, job, "image-damaged");
            changed(&image.join(name), change, damaged)?;
        }
    }
    for change in [fifo, link] {
        let manifest = image.join("stasis.json");
        changed(&manifest, change, || refused(stasis, job, "image-damaged"))?;
    }
    Ok(())
}

/// Without our manifest, and then without our index, too.
fn without_what_vouches_for_it(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image_path("image");
    let gone: Change = |path| Ok(fs::remove_file(path)?);
    changed(&image.join("stasis.json"), gone, || {
        refused(stasis, job, "image-damaged")?;
        changed(&image.join("stasis-memory.index"), gone, || {
            is_unknown(stasis, &job.image("image"), "stasis.json is missing")
        })
    })
}

fn memory_that_changed(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let packs = packs(stasis, job)?;
    for pack in &packs {
        flip(pack)?;
    }
    let flipped = check(stasis, &job.image("image"));
    for pack in &packs {
        flip(pack)?;
    }
    let (code, report) = flipped?;
    ensure!(
        code == Some(1) && report["kind"] == "image-damaged",
        "{report}"
    );
    ensure!(
        report["refusals"][0]["text"]
            .to_string()
            .contains("damaged in"),
        "{report}"
    );
    for pack in &packs {
        fs::rename(pack, pack.with_extension("aside"))?;
    }
    let missing = refused(stasis, job, "memory-missing");
    for pack in &packs {
        fs::rename(pack.with_extension("aside"), pack)?;
    }
    missing
}

/// Returns all copies of the image's packs.
fn packs(stasis: &StasisHost, job: &Bundle<'_>) -> Result<Vec<PathBuf>> {
    let image = job.image_path("image");
    let name = manifest(&image)?["memory"]["image_id"]
        .as_str()
        .context("no memory")?
        .to_owned();
    let stores = [DISK, MEMORY].map(|parent| stasis.path(format!("{parent}/{name}")));
    let mut found = Vec::new();
    for directory in stores
        .into_iter()
        .chain([image])
        .filter(|path| path.exists())
    {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            found.extend(
                path.extension()
                    .is_some_and(|end| end == "pack")
                    .then_some(path),
            );
        }
    }
    ensure!(!found.is_empty(), "no packs");
    Ok(found)
}

fn what_is_no_image_is_refused(stasis: &StasisHost) -> Result<()> {
    stasis.run(&[
        "mkdir",
        "-p",
        "/images/none",
        "/images/half/.stasis-complete",
    ])?;
    for (directory, kind) in [
        ("/images/none", "image-directory"),
        ("/images/nowhere", "image-directory"),
        ("/images/half", "image-damaged"),
    ] {
        let (code, answer) = check(stasis, directory)?;
        ensure!(
            code == Some(1) && answer["kind"] == kind,
            "{directory}: {answer}"
        );
    }
    // CRIU restores nothing without a list of processes.
    stasis.write("/images/none/inventory.img", "x")?;
    let (code, answer) = check(stasis, "/images/none")?;
    ensure!(
        code == Some(1) && answer["kind"] == "image-damaged",
        "{answer}"
    );
    // An image of CRIU alone.
    stasis.write("/images/none/pstree.img", "\u{19}CVT00'P")?;
    is_unknown(
        stasis,
        "/images/none",
        "plain image: CRIU's files only; not verified",
    )
}
