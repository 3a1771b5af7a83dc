//! Images that an attacker has changed. Other file types in place of their files are tried in
//! `engine/verify.rs`, and their contents in `memory/images.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

const PORT: u16 = 10310;
const ROUNDS: u32 = 6;

#[test]
fn hostile_images_are_refused_by_name() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10310"])?;
    job.comes_up(PORT, "ok 0")?;
    job.checkpoint("image", &[])?;
    manifests(&job)?;
    what_is_no_file(&job)?;
    let image = job.image("image");
    // A backup by hard links (cp -al, rsync --link-dest) is an image like any other.
    stasis.run(&["cp", "-al", &image, &job.image("backup")])?;
    job.restore("backup")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    job.delete()?;
    exchanged(stasis, &job)?;
    job.restore("image")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    job.delete()
}

/// Restores the ended job from its image, which has to be refused.
fn refused(job: &Bundle<'_>, kinds: &[&str]) -> Result<()> {
    job.restore_fails("image")?;
    let failure = job.failure()?.context("it reports nothing")?;
    let kind = failure.kind.map_or("", |kind| kind.name());
    ensure!(kinds.contains(&kind), "{failure:?}");
    Ok(())
}

/// Puts something else in a file's place during `then`, and puts the file back.
fn replaced(
    path: &Path,
    put: impl FnOnce(&Path) -> Result<()>,
    then: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let aside = path.with_extension("aside");
    fs::rename(path, &aside)?;
    let result = put(path).and_then(|()| then());
    fs::remove_file(path)?;
    fs::rename(&aside, path)?;
    result.with_context(|| path.display().to_string())
}

fn manifests(job: &Bundle<'_>) -> Result<()> {
    let path = job.image_path("image").join("stasis.json");
    let text = fs::read_to_string(&path)?;
    let with = |first: &str| text.replacen('{', &format!("{{{first},"), 1);
    let deep = "[".repeat(200_000);
    let hostile = [
        deep.clone(),
        with(&format!("\"unknown\":{deep}")),
        with("\"unknown\":1"),
        with("\"container\":\"another\""),
        with("\"container\":\"\\u001b[2J\\nlevel=error\""),
    ];
    for manifest in hostile {
        let put = |path: &Path| Ok(fs::write(path, &manifest)?);
        replaced(&path, put, || refused(job, &["image-damaged"]))
            .with_context(|| manifest[..60.min(manifest.len())].to_owned())?;
    }
    Ok(())
}

fn what_is_no_file(job: &Bundle<'_>) -> Result<()> {
    let image = job.image_path("image");
    let device = |path: &Path| {
        let mode = Mode::from_bits_retain(0o600);
        Ok(mknod(path, SFlag::S_IFCHR, mode, makedev(1, 5))?)
    };
    let fifo = |path: &Path| Ok(nix::unistd::mkfifo(path, Mode::from_bits_retain(0o600))?);
    for path in [
        image.join("inventory.img"),
        image.join("stasis.json"),
        pack(&image)?,
    ] {
        let damaged = || refused(job, &["image-damaged", "memory-missing"]);
        replaced(&path, device, damaged)?;
        replaced(&path, fifo, damaged)?;
    }
    Ok(())
}

fn pack(image: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(image)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "pack") {
            return Ok(path);
        }
    }
    anyhow::bail!("no pack in {}", image.display())
}

/// An attacker exchanges our files while they are read: the job is restored as it was, or refused.
fn exchanged(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let image = job.image_path("image");
    for path in [
        image.join("stasis.json"),
        image.join("stasis-memory.index"),
        pack(&image)?,
    ] {
        let (whole, other) = (path.with_extension("whole"), path.with_extension("other"));
        fs::copy(&path, &whole)?;
        let mut bytes = fs::read(&path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&other, bytes)?;
        for _ in 0..ROUNDS {
            while_exchanged(&path, &whole, &other, || restored_or_refused(stasis, job))?;
        }
        fs::rename(&whole, &path)?;
        fs::remove_file(&other)?;
    }
    Ok(())
}

fn while_exchanged(
    path: &Path,
    whole: &Path,
    other: &Path,
    then: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let goes_on = AtomicBool::new(true);
    let new = path.with_extension("new");
    let exchange = || -> Result<()> {
        while goes_on.load(Ordering::SeqCst) {
            for file in [other, whole] {
                fs::hard_link(file, &new)?;
                fs::rename(&new, path)?;
                // If both are the same file, the rename has done nothing.
                let _ = fs::remove_file(&new);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let exchanging = scope.spawn(exchange);
        let result = {
            // Also after a panic: the scope waits for its threads.
            let _over = Over(&goes_on);
            then()
        };
        let exchanged = exchanging.join().unwrap_or_else(|_| Ok(()));
        result.and(exchanged)
    })
}

/// Ends the exchanging when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

fn restored_or_refused(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    if job.restore("image").is_ok() {
        // The program answers when it has verified all its memory.
        let answer = stasis.ask(PORT)?;
        ensure!(answer.as_deref() == Some("ok 1"), "it answers {answer:?}");
        return job.delete();
    }
    let failure = job.failure()?.context("it reports nothing")?;
    let named = failure.kind.is_some() && failure.state.is_some();
    ensure!(named, "not named: {failure:?}");
    ensure!(job.status()?.is_empty(), "{failure:?} left a container");
    Ok(())
}
