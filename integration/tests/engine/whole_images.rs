//! An image is whole, or its restore is refused before a task runs.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::container::image_files::{contents, unlist};
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

#[test]
fn an_image_is_whole_or_refused() -> Result<()> {
    let host = StasisHost::with_containerd(HostKind::sid()?)?;
    for (number, path) in ["auto", "driver"].into_iter().enumerate() {
        host.set("runc", &format!("gpu_checkpoint.path = \"{path}\"\n"))?;
        let (id, port) = (format!("by-{path}"), 10000 + u16::try_from(number)?);
        let command = format!("exec /bin/memcheck 24 {port}");
        let container = MemoryContainer::start(&host, &id, &command, port)?;
        let (image, then) = (container.bundle.image_path("good"), container.next());
        container.bundle.checkpoint("good", &[])?;
        container.bundle.delete()?;
        let before = contents(&image)?;
        each_file_is_verified(&container).with_context(|| id.clone())?;
        ensure!(contents(&image)? == before, "a restore changed the image");
        restores_elsewhere(&host, &container, then)?;
        restores_as_an_earlier_version_made_it(&container, then)?;
        container.end()?;
    }
    Ok(())
}

type Change = fn(&Path) -> Result<()>;

/// Changes to a file.
const CHANGES: [(&str, Change); 5] = [
    ("shorter", |path| {
        let file = File::options().write(true).open(path)?;
        Ok(file.set_len(file.metadata()?.len() / 2)?)
    }),
    ("flipped", |path| {
        let file = File::options().read(true).write(true).open(path)?;
        let (mut byte, at) = ([0], file.metadata()?.len() / 2);
        file.read_exact_at(&mut byte, at)?;
        Ok(file.write_all_at(&[byte[0] ^ 1], at)?)
    }),
    ("link", |path| {
        fs::remove_file(path)?;
        Ok(symlink("aside", path)?)
    }),
    ("fifo", |path| {
        fs::remove_file(path)?;
        Ok(mkfifo(path, Mode::S_IRUSR)?)
    }),
    ("missing", |path| Ok(fs::remove_file(path)?)),
];

fn each_file_is_verified(container: &MemoryContainer<'_>) -> Result<()> {
    let image = container.bundle.image_path("good");
    let pack = |name: &&String| name.ends_with(".pack");
    let files = contents(&image)?;
    let mut names = vec![
        "inventory.img",
        "pages-1.img",
        "core-1.img",
        "descriptors.json",
    ];
    names.extend(files.keys().filter(pack).map(String::as_str));
    names.extend(
        files
            .keys()
            .map(String::as_str)
            .filter(|name| name.ends_with(".index")),
    );
    for name in names {
        for (what, change) in CHANGES {
            // A pack's chunks are verified when they are filled in.
            if what == "flipped" && name.ends_with(".pack") {
                continue;
            }
            let (path, aside) = (image.join(name), image.join("aside"));
            fs::rename(&path, &aside)?;
            fs::copy(&aside, &path)?;
            change(&path)?;
            let refused = is_refused(container, name);
            fs::rename(&aside, &path)?;
            refused.with_context(|| format!("{name} {what}"))?;
        }
    }
    Ok(())
}

fn is_refused(container: &MemoryContainer<'_>, name: &str) -> Result<()> {
    let bundle = &container.bundle;
    let message = bundle.restore_fails("good")?;
    ensure!(message.contains("nothing was changed"), "{message}");
    ensure!(message.contains(name), "{message}");
    let failure = bundle.failure()?.context("it reports nothing")?;
    let kinds = [Kind::ImageDamaged, Kind::MemoryMissing].map(Some);
    ensure!(kinds.contains(&failure.kind), "{failure:?}");
    ensure!(failure.state == Some(State::Unharmed), "{failure:?}");
    ensure!(bundle.status()?.is_empty(), "there is a container");
    Ok(())
}

/// As engines do: into an archive, and out of it into a directory of another user's.
fn restores_elsewhere(host: &StasisHost, container: &MemoryContainer<'_>, then: u64) -> Result<()> {
    let bundle = &container.bundle;
    let (from, to) = (bundle.image("good"), bundle.image("copy"));
    let script = "mkdir -p $2 && tar -C $1 -cf /run/image.tar . && tar -C $2 -xf /run/image.tar && \
                  rm /run/image.tar && chown 4711 $2 && echo more > $2/config.dump";
    host.run(&["bash", "-c", script, "copy", &from, &to])?;
    bundle.restore("copy")?;
    container.is_back_at(then);
    container.goes_on()?;
    container.end()
}

fn restores_as_an_earlier_version_made_it(
    container: &MemoryContainer<'_>,
    then: u64,
) -> Result<()> {
    let bundle = &container.bundle;
    unlist(&bundle.image_path("good"))?;
    bundle.restore("good")?;
    container.is_back_at(then);
    container.goes_on()
}
