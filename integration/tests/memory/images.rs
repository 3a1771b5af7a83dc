//! Images with changed bulk memory: refused before any task runs, or ended before any has its GPU,
//! with the file and the chunk named, and left unchanged; the container's id is free again.

mod apart;
mod sums;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::image_files::unlist;
use stasis_integration::container::memory_container::{Inventory, MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_memory_store::{INDEX_FILE, Index, Pack};

/// A process with memory, and one that leaves a trace of every moment that it runs.
const COMMAND: &str = "mkdir /ticks; mkfifo /never; (exec 8<>/never; i=0;
    while :; do i=$((i + 1)); mkdir /ticks/$i; read -t 0.02 x <&8; done) &
    exec /bin/memcheck 48 10000";

#[test]
fn bad_images_are_refused_before_any_task_runs() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    stasis.set("runc", "gpu_contents.threads = 1\n")?;
    let holder = MemoryContainer::start(&stasis, "job", COMMAND, 10000)?;
    holder.bundle.checkpoint("other", &["--leave-running"])?;
    holder.goes_on()?;
    holder.bundle.checkpoint("good", &[])?;
    // All contents are loaded, and verified, before CRIU begins.
    stasis.set("runc", "gpu_checkpoint.path = \"driver\"\n")?;
    let images = Images {
        stasis: &stasis,
        holder: &holder,
        before: stasis.inventory()?,
        index: Index::read(&holder.bundle.image_path("good"))?.context("no index")?,
    };
    packs_are_not_what_they_were(&images)?;
    the_index_is_not_what_it_was(&images)?;
    the_index_says_what_cannot_be(&images)?;
    apart::the_index_says_what_is_not_so(&images)?;
    sums::the_index_says_more_than_the_machine_has(&images)?;
    holder.bundle.restore("good")?;
    holder.goes_on()?;
    ensure!(!images.ticks()?.is_empty(), "it leaves no traces");
    Ok(())
}

/// A good image, and bad copies of it.
struct Images<'l> {
    stasis: &'l StasisHost,
    holder: &'l MemoryContainer<'l>,
    before: Inventory,
    index: Index,
}

impl Images<'_> {
    /// Makes a bad copy, which has to be refused with these words.
    fn refused(&self, damage: impl FnOnce(&Path) -> Result<()>, words: &[&str]) -> Result<()> {
        self.tried(damage, words)
            .with_context(|| format!("which should say {words:?}"))
    }

    fn tried(&self, damage: impl FnOnce(&Path) -> Result<()>, words: &[&str]) -> Result<()> {
        self.ended(damage, words)?;
        ensure!(self.ticks()?.is_empty(), "a task has run");
        Ok(())
    }

    /// Does the same where tasks that do not use the GPU may have run.
    fn ended(&self, damage: impl FnOnce(&Path) -> Result<()>, words: &[&str]) -> Result<()> {
        let (good, bad) = (
            self.holder.bundle.image("good"),
            self.holder.bundle.image("bad"),
        );
        self.stasis.run(&["rm", "-rf", &bad])?;
        self.stasis.run(&["cp", "-a", &good, &bad])?;
        let path = self.holder.bundle.image_path("bad");
        damage(&path)?;
        for tick in self.ticks()? {
            fs::remove_dir(self.traces().join(tick))?;
        }
        let image = digests(&path)?;
        let message = self.holder.bundle.restore_fails("bad")?;
        assert_contains(&message, words);
        ensure!(digests(&path)? == image, "the image was changed");
        ensure!(self.holder.processes()?.is_empty(), "something is left");
        self.stasis.no_criu()?;
        let now = self.stasis.inventory()?;
        ensure!(now == self.before, "{now:?} and not {:?}", self.before);
        Ok(())
    }

    fn forged(&self, forge: impl FnOnce(&mut Index), words: &[&str]) -> Result<()> {
        self.refused(self.forgery(forge), words)
    }

    fn forged_and_seen(&self, forge: impl FnOnce(&mut Index), words: &[&str]) -> Result<()> {
        self.ended(self.forgery(forge), words)
            .with_context(|| format!("which should say {words:?}"))
    }

    fn forgery(&self, forge: impl FnOnce(&mut Index)) -> impl FnOnce(&Path) -> Result<()> {
        let mut index = self.index.clone();
        forge(&mut index);
        move |image: &Path| {
            unlist(image)?;
            Ok(fs::write(image.join(INDEX_FILE), index.encode())?)
        }
    }

    fn pack(&self) -> String {
        self.index.packs[0].file_name()
    }

    fn traces(&self) -> PathBuf {
        let root = format!("{}/rootfs/ticks", self.holder.bundle.directory());
        self.stasis.path(root)
    }

    fn ticks(&self) -> Result<Vec<String>> {
        names_in(&self.traces())
    }
}

fn digests(image: &Path) -> Result<BTreeMap<String, blake3::Hash>> {
    let names = names_in(image)?.into_iter();
    let digest = |name: String| {
        let path = image.join(&name);
        let is_plain = path.symlink_metadata()?.is_file();
        // A sparse file of gigabytes is not read.
        let small = is_plain && path.metadata()?.len() < 1 << 30;
        let content = if small { fs::read(&path)? } else { Vec::new() };
        Ok((name, blake3::hash(&content)))
    };
    names.map(digest).collect()
}

fn flip(path: &Path, at: usize) -> Result<()> {
    let mut content = fs::read(path)?;
    content[at] ^= 16;
    Ok(fs::write(path, content)?)
}

fn packs_are_not_what_they_were(images: &Images<'_>) -> Result<()> {
    let pack = images.pack();
    let process = &images.index.processes[0];
    let area = process.areas.last().context("no area")?;
    let chunk = area.chunks.last().context("no chunk")?;
    let named = format!(
        "chunk {} of the area at {:#x} of process {}",
        chunk.number, area.start, process.pid
    );
    let offset = usize::try_from(chunk.place.offset)?;
    let ended = "what had been restored was ended";
    images.refused(
        |image| flip(&image.join(&pack), offset + 1234),
        &[&named, &pack, "do not match their checksum", ended],
    )?;
    let untouched = "nothing was changed";
    let somewhere = "of process 1 is in it";
    images.refused(
        |image| flip(&image.join(&pack), 3),
        &[&pack, somewhere, untouched],
    )?;
    images.refused(
        |image| {
            let file = fs::File::options().write(true).open(image.join(&pack))?;
            Ok(file.set_len(images.index.packs[0].bytes - 1)?)
        },
        &[&pack, somewhere, untouched],
    )?;
    let other = images.holder.bundle.image_path("other");
    let others = Index::read(&other)?.context("no index")?;
    let theirs = other.join(others.packs[0].file_name());
    images.refused(
        |image| Ok(fs::copy(&theirs, image.join(&pack)).map(drop)?),
        &[&pack, somewhere, untouched],
    )?;
    images.refused(
        |image| {
            fs::rename(image.join(&pack), image.join("aside"))?;
            Ok(std::os::unix::fs::symlink("aside", image.join(&pack))?)
        },
        &[&pack, "is not a regular file", untouched],
    )?;
    images.refused(
        |image| {
            fs::remove_file(image.join(&pack))?;
            Ok(fs::create_dir(image.join(&pack))?)
        },
        &[&pack, "is not a regular file", untouched],
    )
}

fn the_index_is_not_what_it_was(images: &Images<'_>) -> Result<()> {
    let untouched = "nothing was changed";
    let words = [INDEX_FILE, untouched];
    images.refused(|image| Ok(fs::remove_file(image.join(INDEX_FILE))?), &words)?;
    images.refused(
        |image| flip(&image.join(INDEX_FILE), 100),
        &[INDEX_FILE, "do not match their hash", untouched],
    )?;
    let length = images.index.encode().len() as u64;
    for bytes in [0, 7, 40, length - 1] {
        images.refused(
            |image| {
                let file = fs::File::options()
                    .write(true)
                    .open(image.join(INDEX_FILE))?;
                Ok(file.set_len(bytes)?)
            },
            &words,
        )?;
    }
    images.refused(
        |image| {
            let file = fs::File::create(image.join(INDEX_FILE))?;
            Ok(file.set_len(1 << 40)?)
        },
        &[INDEX_FILE, "it is larger than 268435456 bytes", untouched],
    )?;
    let other = images.holder.bundle.image_path("other").join(INDEX_FILE);
    images.refused(
        |image| Ok(fs::copy(&other, image.join(INDEX_FILE)).map(drop)?),
        &["belongs to another checkpoint", untouched],
    )
}

/// Every reader of the index refuses it.
fn the_index_says_what_cannot_be(images: &Images<'_>) -> Result<()> {
    let untouched = "nothing was changed";
    let words = [INDEX_FILE, "is damaged", untouched];
    images.forged(|index| index.processes[0].areas[0].bytes = 1 << 62, &words)?;
    images.forged(
        |index| index.processes[0].areas[0].start = u64::MAX - 4095,
        &words,
    )?;
    images.forged(
        |index| {
            let twice = index.processes[0].areas[0].clone();
            index.processes[0].areas.push(twice);
        },
        &words,
    )?;
    images.forged(
        |index| index.processes[0].areas[0].chunks[0].number = u32::MAX,
        &words,
    )?;
    images.forged(
        |index| index.processes[0].areas[0].chunks[0].place.bytes = u32::MAX,
        &words,
    )?;
    images.forged(
        |index| index.processes[0].areas[0].chunks[0].place.offset = u64::MAX - 4095,
        &words,
    )?;
    images.forged(
        |index| index.processes[0].areas[0].chunks[0].place.pack = 7,
        &words,
    )?;
    images.forged(|index| index.processes[0].pid = -1, &words)?;
    images.forged(|index| index.packs[0].bytes = u64::MAX, &words)?;
    images.forged(
        |index| index.packs[0].bytes = 1 << 60,
        &[&images.pack(), "of process 1 is in it", untouched],
    )?;
    images.forged(
        |index| {
            let packs: Vec<Pack> = (0..40_000)
                .map(|stream| Pack {
                    stream,
                    ..index.packs[0]
                })
                .collect();
            index.packs = packs;
        },
        &words,
    )
}
