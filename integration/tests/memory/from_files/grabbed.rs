//! A process of the container takes files that a process beside it has open for a moment: the file
//! that is, or becomes, a pack of the image. No process can write to the image with it.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::{IN_MEMORY, MEMORY};
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::Index;

use super::as_an_image::packs_in;
use super::{has_holes, started};

/// The attempts; each has a moment in which the file can be taken.
const ROUNDS: usize = 40;
/// The time in which the program tries every file that it has taken.
const TRIES: Duration = Duration::from_millis(200);

/// The numbers that the workload `grab` reports.
#[derive(Debug, Default)]
struct Grabbed {
    kept: u64,
    tried: u64,
    written: u64,
}

/// A writable pack is taken; from the end of the checkpoint on it is not writable.
#[test]
fn at_a_checkpoint() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let holder = started(stasis)?;
    // CRIU does not dump an exec session with the files that it has taken.
    let session = ["exec", "--detach", &holder.bundle.id, "/bin/grab"];
    ensure!(holder.bundle.runtime(&session).status()?.success());
    let mut image = String::new();
    tell(stasis, &holder, "grab")?;
    let mut rounds = 0..ROUNDS;
    while grabbed(stasis, &holder)?.kept == 0 {
        image = format!("image{}", rounds.next().context("it has taken nothing")?);
        holder.bundle.checkpoint(&image, &["--leave-running"])?;
        has_holes(&holder, &image)?;
    }
    is_never_written_to(stasis, &holder, &image)?;
    let next = holder.next();
    holder.goes_on()?;
    holder.end()?;
    holder.bundle.restore(&image)?;
    holder.is_back_at(next);
    holder.goes_on()?;
    holder.end()
}

/// By a process that is restored as well, again and again.
#[test]
fn at_a_restore() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let command = "/bin/grab & exec /bin/memcheck 48 10000";
    let holder = MemoryContainer::start(stasis, "job", command, 10000)?;
    holder.bundle.checkpoint("image", &[])?;
    has_holes(&holder, "image")?;
    tell(stasis, &holder, "grab")?;
    tell(stasis, &holder, "write")?;
    let next = holder.next();
    let mut rounds = 0..ROUNDS;
    while grabbed(stasis, &holder)?.kept == 0 {
        rounds.next().context("it has taken nothing")?;
        holder.bundle.restore("image")?;
        sleep(TRIES);
        holder.is_back_at(next);
        holder.goes_on()?;
        holder.end()?;
    }
    is_never_written_to(stasis, &holder, "image")?;
    // The image is good for the next restore.
    holder.bundle.restore("image")?;
    holder.is_back_at(next);
    holder.goes_on()?;
    holder.end()
}

/// Lets the program write with the files that it has taken, and checks that the image is unchanged.
fn is_never_written_to(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    image: &str,
) -> Result<()> {
    let index = Index::read(&holder.bundle.image_path(image))?.context("no index")?;
    let directory = stasis.path(MEMORY).join(index.image_id.to_string());
    let stored = packs_in(&directory)?;
    ensure!(stored.len() == 1, "{stored:?}");
    tell(stasis, holder, "write")?;
    // The program tries all its files once.
    wait_until_clear(|| {
        let grabbed = grabbed(stasis, holder)?;
        Ok((grabbed.tried < grabbed.kept).then(|| format!("{grabbed:?}")))
    })?;
    let grabbed = grabbed(stasis, holder)?;
    ensure!(grabbed.written == 0, "{image}: {grabbed:?}");
    assert_eq!(packs_in(&directory)?, stored);
    Ok(())
}

fn tell(stasis: &StasisHost, holder: &MemoryContainer<'_>, name: &str) -> Result<()> {
    let file = format!("{}/rootfs/{name}", holder.bundle.directory());
    stasis.write(&file, "")
}

fn grabbed(stasis: &StasisHost, holder: &MemoryContainer<'_>) -> Result<Grabbed> {
    let file = format!("{}/rootfs/grabbed", holder.bundle.directory());
    let Ok(said) = std::fs::read_to_string(stasis.path(file)) else {
        return Ok(Grabbed::default());
    };
    let numbers = said.split_whitespace().map(str::parse);
    let numbers = numbers.collect::<Result<Vec<u64>, _>>()?;
    let &[kept, tried, written] = &numbers[..] else {
        anyhow::bail!("{said}");
    };
    Ok(Grabbed {
        kept,
        tried,
        written,
    })
}
