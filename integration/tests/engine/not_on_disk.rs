//! A disk that takes less than it has promised: a checkpoint that has reached the page cache, and
//! not the disk, is not reported good.

use anyhow::{Context, Result, ensure};
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

const NOT_ALL: &str = "could not write all of the image: ";

/// The kernel reports one of them: the loop device lacks room, and so the disk has an error.
const KINDS: [Kind; 2] = [Kind::NoSpace, Kind::ImageDirectory];

#[test]
fn what_is_not_on_disk_is_not_reported_good() -> Result<()> {
    let host = StasisHost::with_containerd(HostKind::sid()?)?;
    for (id, port, path) in [("files", 10000, "auto"), ("memory", 10001, "driver")] {
        host.set("runc", &format!("gpu_checkpoint.path = \"{path}\"\n"))?;
        let command = format!("exec /bin/memcheck 48 {port}");
        let container = MemoryContainer::start(&host, id, &command, port)?;
        let image = container.bundle.image("bad");
        host.host.mount_failing_disk(16 << 20, &image)?;
        goes_on(&container).context(id)?;
        ends(&container, path).context(id)?;
        host.run(&["umount", &image])?;
        container.end()?;
    }
    Ok(())
}

fn goes_on(container: &MemoryContainer<'_>) -> Result<()> {
    let bundle = &container.bundle;
    let message = bundle.checkpoint_fails("bad", &["--leave-running"])?;
    assert_contains(&message, &[NOT_ALL, "the container runs on as before"]);
    let failure = bundle.failure()?.context("it reports nothing")?;
    assert!(KINDS.map(Some).contains(&failure.kind), "{message}");
    assert_eq!(failure.state, Some(State::Unharmed));
    container.nothing_left_of_dump("bad")?;
    let left = names_in(&bundle.image_path("bad"))?;
    ensure!(!left.contains(&"inventory.img".to_owned()), "{left:?}");
    container.goes_on()
}

/// CRIU has ended the container: the written part of its image stays.
fn ends(container: &MemoryContainer<'_>, path: &str) -> Result<()> {
    let bundle = &container.bundle;
    let message = bundle.checkpoint_fails("bad", &[])?;
    let kept = format!(
        "the container has ended, and its image in {}",
        bundle.image("bad")
    );
    assert_contains(&message, &[NOT_ALL, &kept, "copy it to another disk"]);
    let failure = bundle.failure()?.context("it reports nothing")?;
    assert!(KINDS.map(Some).contains(&failure.kind), "{message}");
    assert_eq!(failure.state, Some(State::Ended));
    assert!(!failure.image_complete, "{message}");
    let left = names_in(&bundle.image_path("bad"))?;
    for name in ["inventory.img", "stasis.json"] {
        ensure!(left.contains(&name.to_owned()), "{name}: {left:?}");
    }
    let has_index = left.contains(&"stasis-memory.index".to_owned());
    assert_eq!(has_index, path == "auto", "{left:?}");
    Ok(())
}
