//! A store or an image directory that is full, at whichever step that shows: the error names the
//! file, the reason and the room left on the file system, nothing stays there, and the container
//! goes on with all of its memory.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::contents::{self, Contents};
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_memory_store::{Index, PAGE};

const STORE: &str = contents::DISK;
const RUNS_ON: &str = "the container runs on as before";

#[test]
fn what_is_full_is_told_and_changes_nothing() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    let command = "exec /bin/memcheck 48 10000";
    let holder = MemoryContainer::start(&stasis, "job", command, 10000)?;
    set(&stasis, Contents::OnDisk)?;
    holder.bundle.checkpoint("good", &["--leave-running"])?;
    holder.goes_on()?;
    let index = Index::read(&holder.bundle.image_path("good"))?.context("no index")?;
    let packs: u64 = index.packs.iter().map(|pack| pack.bytes).sum();
    let index = (index.encode().len() as u64).next_multiple_of(PAGE as u64);
    store_is_full(&stasis, &holder, packs)?;
    image_is_full(&stasis, &holder, packs + index)?;
    holder.bundle.checkpoint("good", &[])?;
    holder.bundle.restore("good")?;
    holder.goes_on()
}

/// One thread, so that sizes are always the same.
fn set(stasis: &StasisHost, place: Contents) -> Result<()> {
    stasis.set(
        "runc",
        &format!(
            "{}gpu_contents.threads = 1\npreflight.disk_space = \"ignore\"\n",
            place.setting()
        ),
    )
}

/// At the first chunks, in the middle and at the last chunks, of a file system on which room is
/// reserved, and which is written past the page cache. A tmpfs would leave contents to the image.
fn store_is_full(stasis: &StasisHost, holder: &MemoryContainer<'_>, packs: u64) -> Result<()> {
    // The file system's own tables take some MiB.
    let own = 8 << 20;
    for bytes in [packs / 8, packs / 2, packs * 3 / 4] {
        for options in [&[][..], &["--leave-running"]] {
            stasis.host.mount_disk(bytes + own, STORE)?;
            fails(stasis, holder, options).with_context(|| format!("with {bytes} bytes"))?;
            unmount(stasis, STORE)?;
        }
    }
    stasis.host.mount_disk(2 * packs + own, STORE)?;
    holder.bundle.checkpoint("good", &["--leave-running"])?;
    holder.goes_on()?;
    stasis.processes_at_rest()?;
    stasis.run(&["mount", "-o", "remount,ro", STORE])?;
    let message = holder.bundle.checkpoint_fails("full", &[])?;
    assert_contains(&message, &[STORE, "Read-only file system", RUNS_ON]);
    holder.nothing_left_of_dump("full")?;
    holder.goes_on()?;
    unmount(stasis, STORE)
}

fn fails(stasis: &StasisHost, holder: &MemoryContainer<'_>, options: &[&str]) -> Result<()> {
    let message = holder.bundle.checkpoint_fails("full", options)?;
    assert_contains(&message, &["cannot write", STORE]);
    assert_contains(
        &message,
        &["the disk is full (", "free on this file system)", RUNS_ON],
    );
    holder.nothing_left_of_dump("full")?;
    let mut left = names_in(&stasis.path(STORE))?;
    left.retain(|name| name != "lost+found");
    ensure!(left.is_empty(), "{left:?} are left");
    holder.goes_on()
}

/// The process that removes unneeded stores after a checkpoint has the directory open.
fn unmount(stasis: &StasisHost, at: &str) -> Result<()> {
    stasis.processes_at_rest()?;
    stasis.run(&["umount", at]).map(drop)
}

/// In the middle of the memory, and where CRIU lacks room.
fn image_is_full(stasis: &StasisHost, holder: &MemoryContainer<'_>, bytes: u64) -> Result<()> {
    set(stasis, Contents::InImage)?;
    let image = holder.bundle.image("full");
    for (bytes, parts) in [
        (bytes / 2, &["cannot write", "pack", "the disk is full"][..]),
        (bytes + (96 << 10), &["CRIU: Error"]),
    ] {
        stasis.host.mount_memory(bytes, &image)?;
        let message = holder.bundle.checkpoint_fails("full", &[])?;
        assert_contains(&message, parts);
        assert_contains(&message, &[RUNS_ON]);
        holder.nothing_left_of_dump("full")?;
        holder.goes_on()?;
        unmount(stasis, &image)?;
    }
    Ok(())
}
