//! An image stays whole until the next one in its directory is complete, whatever fails.

mod carried_files;
mod file_systems;
mod power;

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use stasis_engine::error::kind::Kind;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::container::contents::Contents;
use stasis_integration::container::image_files::contents;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

#[test]
fn an_image_stays_whole_until_the_next_is_complete() -> Result<()> {
    let host = StasisHost::with_containerd(HostKind::sid()?)?;
    for (number, place) in Contents::ALL.into_iter().enumerate() {
        let port = 10000 + u16::try_from(number)?;
        let kept = Kept::start(&host, place, port)?;
        kept.all_cases().with_context(|| format!("{place:?}"))?;
    }
    one_writer_at_a_time(&host)?;
    a_full_disk_has_the_earlier_image(&host)
}

/// Two jobs and one directory, which is empty at first. A checkpoint that fails as busy has changed
/// nothing; and the earlier image can be restored while another one is written.
fn one_writer_at_a_time(host: &StasisHost) -> Result<()> {
    host.set("runc", "")?;
    let one = MemoryContainer::start(host, "one", "exec /bin/memcheck 24 10007", 10007)?;
    let two = MemoryContainer::start(host, "two", "exec /bin/memcheck 24 10008", 10008)?;
    let into = one.bundle.image("shared");
    let same = ["--image-path", &into];
    let begun = held(host, &one, &same)?;
    let message = two.bundle.checkpoint_fails("own", &same)?;
    assert_contains(&message, &["another checkpoint is writing an image into"]);
    let failure = two.bundle.failure()?.context("it reports nothing")?;
    ensure!(failure.kind == Some(Kind::Busy), "{failure:?}");
    two.goes_on()?;
    let then = one.next();
    ends(host, begun)?;
    one.is_back_at(then);

    let begun = held(host, &two, &same)?;
    one.bundle.delete()?;
    one.bundle
        .restore("shared")
        .context("beside a checkpoint")?;
    one.goes_on()?;
    let then = two.next();
    ends(host, begun)?;
    one.end()?;
    two.bundle.delete()?;
    two.is_back_at(then);
    host.run(&["cp", "-a", &into, &two.bundle.image("shared")])?;
    two.bundle.restore("shared").context("the other's")?;
    two.goes_on()?;
    two.end()
}

/// Begins a checkpoint that is held at its driver call.
fn held(host: &StasisHost, of: &MemoryContainer<'_>, options: &[&str]) -> Result<Child> {
    host.hold_driver(&format!("checkpoint {}", of.bundle.id), "held")?;
    let begun = of.bundle.begin_checkpoint("own", options)?;
    host.until_driver_is_called()?;
    Ok(begun)
}

fn ends(host: &StasisHost, mut begun: Child) -> Result<()> {
    host.let_driver_go("held")?;
    ensure!(begun.wait()?.success(), "the checkpoint that was held");
    host.inject("")
}

/// Scripts in place of runc: one kills its caller at a checkpoint, the other one fails after a
/// checkpoint that has succeeded.
const KILLER: (&str, &str) = (
    "/usr/local/bin/killer",
    "#!/bin/sh\ncase \" $* \" in *\" checkpoint \"*) kill -9 $PPID;; esac\nexec runc \"$@\"\n",
);
const FAILING: (&str, &str) = (
    "/usr/local/bin/failing",
    "#!/bin/sh\nrunc \"$@\"\nstatus=$?\ncase \" $* \" in *\" checkpoint \"*) exit 1;; esac\nexit $status\n",
);

/// A container whose image directory is used again and again.
struct Kept<'l> {
    host: &'l StasisHost,
    container: MemoryContainer<'l>,
    settings: String,
}

impl<'l> Kept<'l> {
    fn start(host: &'l StasisHost, place: Contents, port: u16) -> Result<Self> {
        let settings = place.setting().to_owned();
        host.set("runc", &settings)?;
        for (path, script) in [KILLER, FAILING] {
            host.script(path, script)?;
        }
        let command = format!("exec /bin/memcheck 48 {port}");
        let id = format!("{place:?}").to_lowercase();
        Ok(Self {
            host,
            container: MemoryContainer::start(host, &id, &command, port)?,
            settings,
        })
    }

    fn all_cases(&self) -> Result<()> {
        let bundle = &self.container.bundle;
        bundle.checkpoint("same", &["--leave-running"])?;
        let (then, image) = (self.container.next(), self.image()?);
        self.container.goes_on()?;
        self.checkpoints_fail(&image)?;
        self.is_killed_in_the_driver(&image)?;
        self.container.end()?;
        self.container.is_back_at(then);
        bundle.restore("same").context("the earlier image")?;
        self.container.goes_on()?;
        self.the_next_image_replaces_it()?;
        self.ends_although(KILLER.0, "same")?;
        self.ends_although(FAILING.0, "same")?;
        self.ends_although(FAILING.0, "fresh")?;
        self.container.end()
    }

    fn checkpoints_fail(&self, image: &BTreeMap<String, blake3::Hash>) -> Result<()> {
        let (host, id) = (self.host, &self.container.bundle.id);
        let faults: [(&str, String); 4] = [
            ("lock", format!("lock {id} busy")),
            ("gpu checkpoint", format!("checkpoint {id} error:801")),
            ("dump:1:error", String::new()),
            ("dump:1:kill", String::new()),
        ];
        let criu = ["/usr/sbin/criu", "/usr/sbin/criu.away"];
        let mut options = [&[][..], &["--leave-running"]].into_iter().cycle();
        for (name, fault) in faults {
            let deadlines = "[deadlines]\nlock_ms = 500\n";
            host.set("runc", &format!("{}{deadlines}", self.settings))?;
            host.inject(&fault)?;
            self.container
                .inject(if fault.is_empty() { name } else { "" })?;
            self.fails(
                options.next().unwrap_or_default(),
                image,
                "runs on as before",
            )
            .context(name)?;
            host.inject("")?;
            self.container.inject("")?;
            host.set("runc", &self.settings)?;
            self.container.goes_on().context(name)?;
        }
        host.run(&["mv", criu[0], criu[1]])?;
        let failed = self.fails(&[], image, "nothing was changed");
        host.run(&["mv", criu[1], criu[0]])?;
        failed.context("no criu")?;
        self.container.goes_on()
    }

    fn fails(
        &self,
        options: &[&str],
        image: &BTreeMap<String, blake3::Hash>,
        says: &str,
    ) -> Result<()> {
        let message = self.container.bundle.checkpoint_fails("same", options)?;
        assert_contains(&message, &[says]);
        ensure!(self.image()? == *image, "the image was touched: {message}");
        self.nothing_left_over("same")
    }

    /// The runtime is killed while the driver works.
    fn is_killed_in_the_driver(&self, image: &BTreeMap<String, blake3::Hash>) -> Result<()> {
        let bundle = &self.container.bundle;
        let call = format!("checkpoint {}", bundle.id);
        self.host.hold_driver(&call, "held")?;
        let mut child = bundle.begin_checkpoint("same", &[])?;
        self.host.until_driver_is_called()?;
        let runtime = descendant(&child, "stasis-runtime")?.context("it is over")?;
        kill(runtime, Signal::SIGKILL)?;
        child.wait()?;
        self.host.let_driver_go("held")?;
        self.host.inject("")?;
        ensure!(self.image()? == *image, "the image was touched");
        Ok(())
    }

    fn the_next_image_replaces_it(&self) -> Result<()> {
        let bundle = &self.container.bundle;
        for options in [&["--leave-running"][..], &[]] {
            bundle.checkpoint("same", options)?;
            self.nothing_left_over("same")?;
        }
        bundle.restore("same").context("the next image")?;
        self.container.goes_on()
    }

    /// CRIU ends the container with a complete image, which is then its only copy, and the
    /// checkpoint fails.
    fn ends_although(&self, low_level: &str, image: &str) -> Result<()> {
        let bundle = &self.container.bundle;
        let settings = format!("runtime.flavor = \"runc\"\n{}", self.settings);
        self.host.set(low_level, &settings)?;
        let mut operation = bundle.begin_checkpoint(image, &[])?;
        ensure!(!operation.wait()?.success(), "{low_level}: it succeeded");
        bundle.until_ended()?;
        self.host.set("runc", &self.settings)?;
        self.host.nothing_to_put_right()?;
        bundle.delete()?;
        bundle.restore(image).context(low_level.to_owned())?;
        self.nothing_left_over(image)?;
        self.container.goes_on().context(low_level.to_owned())
    }

    fn image(&self) -> Result<BTreeMap<String, blake3::Hash>> {
        contents(&self.container.bundle.image_path("same"))
    }

    fn nothing_left_over(&self, image: &str) -> Result<()> {
        let path = self.container.bundle.image_path(image);
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            ensure!(entry.file_type()?.is_file(), "{:?} is left", entry.path());
        }
        Ok(())
    }
}

/// The image directory is the root of a file system that has no room for two images.
fn a_full_disk_has_the_earlier_image(host: &StasisHost) -> Result<()> {
    host.set("runc", "preflight.disk_space = \"ignore\"\n")?;
    let full = MemoryContainer::start(host, "full", "exec /bin/memcheck 24 10009", 10009)?;
    let directory = full.bundle.image("same");
    host.run(&["mkdir", "-p", &directory])?;
    let mount = [
        "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", &directory,
    ];
    host.run(&mount)?;
    full.bundle.checkpoint("same", &["--leave-running"])?;
    let (then, image) = (full.next(), contents(&full.bundle.image_path("same"))?);
    full.goes_on()?;
    let message = full.bundle.checkpoint_fails("same", &[])?;
    assert_contains(&message, &["runs on as before"]);
    full.goes_on()?;
    assert_eq!(contents(&full.bundle.image_path("same"))?, image);
    full.end()?;
    full.is_back_at(then);
    full.bundle.restore("same")?;
    full.goes_on()?;
    full.end()
}
