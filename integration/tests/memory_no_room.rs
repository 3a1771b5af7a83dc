//! A store or an image directory that is full, wherever that is noticed: the error names the file, what is wrong and what is left of the
//! file system, nothing stays there, and the container goes on with all of its memory.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use stasis_integration::holder::{Holder, names_in};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::message::says;
use stasis_memory_store::{Index, PAGE};

const STORE: &str = "/var/lib/stasis/memory";
const RUNS_ON: &str = "the container runs on as before";

#[test]
fn what_is_full_is_told_and_changes_nothing() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    let command = "exec /bin/heaps 10000 24 random plain heap";
    let holder = Holder::start(&lab, "heaps", command, 10000)?;
    set(&lab, "disk")?;
    holder.bundle.checkpoint("good", &["--leave-running"])?;
    holder.goes_on()?;
    let index = Index::read(&holder.bundle.image_path("good"))?.context("no index")?;
    let packs: u64 = index.packs.iter().map(|pack| pack.bytes).sum();
    let index = (index.encode().len() as u64).next_multiple_of(PAGE as u64);
    store_is_full(&lab, &holder, packs, index)?;
    disk_is_full(&lab, &holder, packs)?;
    image_is_full(&lab, &holder, packs + index)?;
    holder.bundle.checkpoint("good", &[])?;
    holder.bundle.restore("good")?;
    holder.goes_on()
}

/// One thread, so that sizes are always the same.
fn set(lab: &Lab, tier: &str) -> Result<()> {
    lab.set(
        "runc",
        &format!("bulk_memory = {{ containers = \"all\", threads = 1, tier = \"{tier}\" }}\n"),
    )
}

fn mount(lab: &Lab, bytes: u64, at: &str) -> Result<()> {
    let size = format!("size={bytes}");
    lab.host.run(&["mkdir", "-p", at])?;
    lab.host
        .run(&["mount", "-t", "tmpfs", "-o", &size, "tmpfs", at])?;
    Ok(())
}

/// At the first chunk, in the middle, at the last chunk, and at the index.
fn store_is_full(lab: &Lab, holder: &Holder<'_>, packs: u64, index: u64) -> Result<()> {
    let page = PAGE as u64;
    for bytes in [page, packs / 2 / page * page, packs - page, packs] {
        for options in [&[][..], &["--leave-running"]] {
            mount(lab, bytes, STORE)?;
            fails(lab, holder, options).with_context(|| format!("with {bytes} bytes"))?;
            lab.host.run(&["umount", STORE])?;
        }
    }
    mount(lab, packs + index, STORE)?;
    holder.bundle.checkpoint("good", &["--leave-running"])?;
    holder.goes_on()?;
    lab.host.run(&["umount", STORE])?;

    mount(lab, 2 * packs, STORE)?;
    lab.host.run(&["mount", "-o", "remount,ro", STORE])?;
    let said = holder.bundle.checkpoint_fails("full", &[])?;
    says(&said, &[STORE, "Read-only file system", RUNS_ON]);
    holder.nothing_left_of_dump("full")?;
    holder.goes_on()?;
    lab.host.run(&["umount", STORE])?;
    Ok(())
}

fn fails(lab: &Lab, holder: &Holder<'_>, options: &[&str]) -> Result<()> {
    let said = holder.bundle.checkpoint_fails("full", options)?;
    says(&said, &["bulk memory: cannot write", STORE]);
    says(
        &said,
        &["the disk is full (", "free on this file system)", RUNS_ON],
    );
    holder.nothing_left_of_dump("full")?;
    let mut left = names_in(&lab.host.path(STORE))?;
    left.retain(|name| name != "lost+found");
    ensure!(left.is_empty(), "{left:?} are left");
    holder.goes_on()
}

/// A file system that is asked for room beforehand, and written to past the page cache.
fn disk_is_full(lab: &Lab, holder: &Holder<'_>, packs: u64) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    // Its own tables take some MiB.
    file.as_file().set_len(packs / 2 + (8 << 20))?;
    let made = Command::new("mkfs.ext4")
        .arg("-Fq")
        .arg(file.path())
        .status()?;
    ensure!(made.success(), "mkfs.ext4: {made}");
    lab.host.install(file.path(), "/run/small-disk")?;
    // Those from 5 on stand for GPUs. It is given up with its mount.
    let script = "for number in 4 3 2 1 0; do
        mknod /run/loop$number b 7 $number
        losetup /run/loop$number /run/small-disk || continue
        mount /run/loop$number $1; mounted=$?
        losetup -d /run/loop$number
        exit $mounted
    done; exit 1";
    lab.host
        .run(&["bash", "-c", script, "mount", STORE])
        .context("no loop device")?;
    for options in [&[][..], &["--leave-running"]] {
        fails(lab, holder, options).context("on ext4")?;
    }
    lab.host.run(&["umount", STORE])?;
    Ok(())
}

/// In the middle of the memory, and when it is CRIU that lacks room.
fn image_is_full(lab: &Lab, holder: &Holder<'_>, bytes: u64) -> Result<()> {
    set(lab, "portable")?;
    let image = holder.bundle.image("full");
    for (bytes, parts) in [
        (bytes / 2, &["cannot write", "pack", "the disk is full"][..]),
        (bytes + (96 << 10), &["criu said: Error"]),
    ] {
        mount(lab, bytes, &image)?;
        let said = holder.bundle.checkpoint_fails("full", &[])?;
        says(&said, parts);
        says(&said, &[RUNS_ON]);
        holder.nothing_left_of_dump("full")?;
        holder.goes_on()?;
        lab.host.run(&["umount", &image])?;
    }
    Ok(())
}
