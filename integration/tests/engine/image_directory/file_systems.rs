//! Image directories on the file systems that nodes have: an image is replaced, outlives killed
//! operations, restores, and is removed.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::image_files::contents;
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::disk::FileSystemKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::KILLER;

/// The mount point, with images and, where they are apart, GPU contents.
const DISK: &str = "/images";

const CASES: [(FileSystemKind, Contents); 7] = [
    (FileSystemKind::Ext4, Contents::InImage),
    (FileSystemKind::Xfs, Contents::InImage),
    (FileSystemKind::Xfs, Contents::Apart),
    (FileSystemKind::Btrfs, Contents::InImage),
    (FileSystemKind::Btrfs, Contents::Apart),
    (FileSystemKind::Overlay, Contents::InImage),
    (FileSystemKind::Tmpfs, Contents::InImage),
];

/// The place of GPU contents; apart from the image they are on the same file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    InImage,
    Apart,
}

impl Contents {
    fn setting(self) -> String {
        match self {
            Self::InImage => String::new(),
            Self::Apart => format!("gpu_contents.directory = \"{DISK}/contents\"\n"),
        }
    }
}

#[test]
fn images_are_on_each_file_system() -> Result<()> {
    let host = StasisHost::with_containerd(HostKind::sid()?)?;
    host.script(KILLER.0, KILLER.1)?;
    for (number, (kind, place)) in CASES.into_iter().enumerate() {
        on(&host, kind, place, 10000 + u16::try_from(number)?)
            .with_context(|| format!("{kind:?}, {place:?}"))?;
    }
    Ok(())
}

fn on(host: &StasisHost, kind: FileSystemKind, place: Contents, port: u16) -> Result<()> {
    host.host.mount_new(kind, DISK)?;
    host.set("runc", &place.setting())?;
    let command = format!("exec /bin/memcheck 24 {port}");
    let id = format!("{kind:?}-{place:?}").to_lowercase();
    let container = MemoryContainer::start(host, &id, &command, port)?;
    let bundle = &container.bundle;
    for image in ["first", "same"] {
        bundle.checkpoint(image, &["--leave-running"])?;
    }
    container.goes_on()?;
    is_killed_in_the_dump(host, &container)?;
    the_next_one_outlives_its_runtime(host, &container, place)?;
    let images = ["first", "same"].map(|image| bundle.image(image));
    for image in &images {
        let verified = host.run(&[PROGRAM, "verify", "--here", image]);
        verified.with_context(|| image.clone())?;
    }
    container.end()?;
    the_older_one_is_removed(host, &container, &images)?;
    host.run(&["umount", "--recursive", DISK]).map(drop)
}

/// CRIU is killed when it has written a part of the second image.
fn is_killed_in_the_dump(host: &StasisHost, container: &MemoryContainer<'_>) -> Result<()> {
    let path = container.bundle.image_path("same");
    let before = contents(&path)?;
    container.inject("dump:1:kill")?;
    let message = container.bundle.checkpoint_fails("same", &[])?;
    container.inject("")?;
    assert_contains(&message, &["runs on as before"]);
    ensure!(
        contents(&path)? == before,
        "the image was touched: {message}"
    );
    host.nothing_to_put_right()?;
    host.no_criu()?;
    nothing_else_is_in(container, "same")?;
    container.goes_on()
}

/// The runtime is killed as soon as it has called runc, which continues: runc's image is the
/// container's last copy, and replaces the earlier one.
fn the_next_one_outlives_its_runtime(
    host: &StasisHost,
    container: &MemoryContainer<'_>,
    place: Contents,
) -> Result<()> {
    let bundle = &container.bundle;
    let setting = format!("runtime.flavor = \"runc\"\n{}", place.setting());
    host.set(KILLER.0, &setting)?;
    let mut operation = bundle.begin_checkpoint("same", &[])?;
    ensure!(!operation.wait()?.success(), "it was not killed");
    bundle.until_ended()?;
    host.set("runc", &place.setting())?;
    host.nothing_to_put_right()?;
    bundle.delete()?;
    // Its count tells it from the two earlier images.
    bundle.restore("same")?;
    container.goes_on()?;
    nothing_else_is_in(container, "same")?;
    bundle.checkpoint("same", &[])?;
    bundle.delete()?;
    bundle.restore("same").context("what replaced that")?;
    container.goes_on()
}

fn nothing_else_is_in(container: &MemoryContainer<'_>, image: &str) -> Result<()> {
    let names = names_in(&container.bundle.image_path(image))?;
    let waits = names.iter().find(|name| name.starts_with(".stasis"));
    ensure!(waits.is_none(), "{names:?}");
    Ok(())
}

fn the_older_one_is_removed(
    host: &StasisHost,
    container: &MemoryContainer<'_>,
    images: &[String; 2],
) -> Result<()> {
    let id = &container.bundle.id;
    let gc = ["gc", "--keep", "1", "--container", id, "--yes"];
    let said = host.run_for_text(&[&[PROGRAM][..], &gc].concat())?;
    assert_contains(&said, &[&images[0]]);
    let is_there = images.each_ref().map(|image| host.path(image).exists());
    ensure!(is_there == [false, true], "{is_there:?}: {said}");
    Ok(())
}
