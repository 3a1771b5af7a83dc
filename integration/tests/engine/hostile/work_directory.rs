//! Other files in place of the ones that CRIU and runc write into their work directory as root: no
//! file outside of it is written, and no operation waits for a fifo.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use stasis_engine::error::kind::State;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

const PORT: u16 = 10311;
const OUTSIDE: &str = "/root/outside";
const KEPT: &str = "not CRIU's";
const WORK: &str = "/work";

#[test]
fn logs_lead_nowhere_and_hold_up_nobody() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid()?)?;
    stasis.set("runc", "deadlines.stalled_s = 20\n")?;
    stasis.write(OUTSIDE, KEPT)?;
    stasis.run(&["mkdir", WORK])?;
    let job = &Bundle::make(stasis, "job", &["/bin/counter", &PORT.to_string()])?;
    job.run()?;
    let counted: u32 = stasis.ask_until_up(PORT)?.parse()?;
    refused(stasis, job, &["dump.log", "stats-dump"], || {
        checkpoint(job, "never", &[])
    })?;
    assert_eq!(stasis.ask(PORT)?, Some((counted + 1).to_string()));
    ensure!(checkpoint(job, "image", &[])?, "{:?}", job.failure()?);
    let logs = ["restore.log", "stats-restore"];
    refused(stasis, job, &logs, || restore(job, "image"))?;
    // An image without a manifest is read by runc and CRIU alone.
    let manifest = job.image_path("image").join("stasis.json");
    fs::rename(&manifest, manifest.with_extension("aside"))?;
    refused(stasis, job, &logs, || restore(job, "image"))?;
    what_is_read(stasis, job)?;
    fs::rename(manifest.with_extension("aside"), &manifest)?;
    ensure!(restore(job, "image")?, "{:?}", job.failure()?);
    assert_eq!(stasis.ask(PORT)?, Some((counted + 2).to_string()));
    job.delete()
}

/// A process that opens a fifo of an image would wait, too.
fn what_is_read(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    for name in ["inventory.img", "descriptors.json", "another.img"] {
        let at = job.image_path("image").join(name);
        let aside = at.with_extension("aside");
        let was_there = fs::rename(&at, &aside).is_ok();
        for put in [fifo, device] {
            put(&at)?;
            ensure!(!restore(job, "image")?, "{name}: it succeeded");
            let failure = job.failure()?.context("it reports nothing")?;
            let kind = failure.kind.map(|kind| kind.name());
            ensure!(kind == Some("image-damaged"), "{name}: {failure:?}");
            fs::remove_file(&at)?;
        }
        if was_there {
            fs::rename(&aside, &at)?;
        }
    }
    stasis.no_criu()
}

/// Puts each kind of file in place of each name: the operation is refused by name, and the file
/// outside is unchanged.
fn refused(
    stasis: &StasisHost,
    job: &Bundle<'_>,
    names: &[&str],
    operation: impl Fn() -> Result<bool>,
) -> Result<()> {
    for name in names {
        for put in [link, fifo, device] {
            let at = stasis.path(WORK).join(name);
            let _ = fs::remove_file(&at);
            put(&at)?;
            ensure!(!operation()?, "{name}: it succeeded");
            let failure = job.failure()?.context("it reports nothing")?;
            let kind = failure.kind.map(|kind| kind.name());
            ensure!(kind == Some("image-directory"), "{name}: {failure:?}");
            ensure!(failure.state == Some(State::Unharmed), "{failure:?}");
            assert_contains(&failure.message, &[name, "is no regular file"]);
            assert_eq!(fs::read_to_string(stasis.path(OUTSIDE))?, KEPT);
            fs::remove_file(&at)?;
        }
    }
    Ok(())
}

fn checkpoint(job: &Bundle<'_>, name: &str, options: &[&str]) -> Result<bool> {
    let image = job.image(name);
    let paths = ["checkpoint", "--image-path", &image, "--work-path", WORK];
    succeeds(job, &[&paths, options].concat())
}

fn restore(job: &Bundle<'_>, name: &str) -> Result<bool> {
    let (image, bundle) = (job.image(name), job.directory());
    let paths = ["--image-path", &image, "--bundle", &bundle];
    succeeds(
        job,
        &[&["restore", "--detach", "--work-path", WORK], &paths[..]].concat(),
    )
}

fn succeeds(job: &Bundle<'_>, arguments: &[&str]) -> Result<bool> {
    let mut operation = job.operation(arguments)?;
    let status = operation.arg(&job.id).stderr(Stdio::null()).status()?;
    Ok(status.success())
}

fn link(path: &Path) -> Result<()> {
    Ok(symlink(OUTSIDE, path)?)
}

fn fifo(path: &Path) -> Result<()> {
    Ok(nix::unistd::mkfifo(path, Mode::from_bits_retain(0o600))?)
}

fn device(path: &Path) -> Result<()> {
    let mode = Mode::from_bits_retain(0o600);
    Ok(mknod(path, SFlag::S_IFCHR, mode, makedev(1, 5))?)
}
