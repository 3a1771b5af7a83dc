//! Memory of every kind that a process can have, brought back byte for byte; also where a
//! checkpoint fails.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// MiB of each kind: more than what is left to CRIU.
const SIZE: &str = "24";

on_hosts!(all_cases: sid, crun_on_sid_v2, trixie_v2, crun_on_trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    let _containerd = stasis.containerd()?;
    stasis.set(&stasis.low_level, "bulk_memory.heaps = true\n")?;
    every_kind_comes_back(&stasis)?;
    a_dump_that_fails_late_changes_nothing(&stasis)
}

/// What `heaps` says when all is well (integration/workloads/heaps/main.c).
#[derive(Debug, PartialEq, Eq)]
struct Intact {
    kinds: u32,
    bytes: u64,
    /// Of all contents, which are other ones each time, and the same in the same turn.
    checksum: String,
    /// How often it was asked.
    turn: u32,
    /// What has become of guard marks.
    guards: String,
}

/// A container that holds memory.
struct Heaps<'l> {
    stasis: &'l StasisHost,
    bundle: Bundle<'l>,
    port: u16,
}

impl<'l> Heaps<'l> {
    /// Starts one with memory of all kinds, after a preparation by the shell.
    fn start(stasis: &'l StasisHost, port: u16, preparation: &str) -> Result<Self> {
        let script = format!("{preparation} exec /bin/heaps {port} {SIZE}");
        let id = format!("heaps-{port}");
        let bundle = Bundle::make(stasis, &id, &["/bin/sh", "-c", &script])?;
        bundle.change(|spec| {
            let capabilities = &mut spec["process"]["capabilities"];
            for set in ["bounding", "effective", "permitted"] {
                if let Some(set) = capabilities[set].as_array_mut() {
                    set.push(json!("CAP_IPC_LOCK"));
                }
            }
        })?;
        bundle.suit_crun()?;
        bundle.run()?;
        Ok(Self {
            stasis,
            bundle,
            port,
        })
    }

    /// Has it verify all of its memory.
    fn verify(&self) -> Result<Intact> {
        let answer = self.stasis.ask(self.port)?;
        parse(&answer.context("it does not answer")?)
    }

    /// The same as soon as it has made its memory.
    fn verify_first(&self) -> Result<Intact> {
        parse(&self.stasis.ask_until_up(self.port)?)
    }
}

fn parse(answer: &str) -> Result<Intact> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    let ["ok", kinds, bytes, checksum, turn, guards] = words[..] else {
        anyhow::bail!("its memory is not as it was: {answer}");
    };
    Ok(Intact {
        kinds: kinds.parse()?,
        bytes: bytes.parse()?,
        checksum: checksum.to_owned(),
        turn: turn.parse()?,
        guards: guards.to_owned(),
    })
}

/// Nothing is missing, and it went on from where it was.
fn goes_on(before: &Intact, now: &Intact) {
    assert_eq!(now.turn, before.turn + 1, "{before:?} {now:?}");
    assert_eq!((now.kinds, now.bytes), (before.kinds, before.bytes));
    assert_eq!(now.guards, before.guards);
}

fn every_kind_comes_back(stasis: &StasisHost) -> Result<()> {
    let heaps = Heaps::start(stasis, 10000, "")?;
    let first = heaps.verify_first()?;
    assert_eq!(first.kinds, 31, "{first:?}");

    heaps.bundle.checkpoint("running", &["--leave-running"])?;
    heaps.is_moved("running", &first)?;
    let second = heaps.verify()?;
    goes_on(&first, &second);

    heaps.bundle.checkpoint("ended", &[])?;
    heaps.is_moved("ended", &first)?;
    heaps.bundle.restore("ended")?;
    let third = heaps.verify()?;
    goes_on(&second, &third);

    heaps.bundle.checkpoint("again", &[])?;
    heaps.bundle.restore("again")?;
    goes_on(&third, &heaps.verify()?);
    heaps.bundle.delete()?;

    // Images are as good as new after a restore, and after that of another.
    for (image, then) in [("ended", &third), ("running", &second)] {
        heaps.bundle.restore(image)?;
        assert_eq!(&heaps.verify()?, then, "from {image}");
        heaps.bundle.delete()?;
    }
    Ok(())
}

/// CRIU finds a deleted file that is larger than it takes along, when all memory has been looked
/// at.
fn a_dump_that_fails_late_changes_nothing(stasis: &StasisHost) -> Result<()> {
    let ghost = "head -c 2000000 /dev/zero >/ghost; exec 9</ghost; rm /ghost;";
    let heaps = Heaps::start(stasis, 10001, ghost)?;
    let mut last = heaps.verify_first()?;
    for options in [&[][..], &["--leave-running"]] {
        heaps.bundle.checkpoint_fails("ghost", options)?;
        let log = fs::read_to_string(heaps.bundle.image_path("ghost/dump.log"))?;
        assert_contains(&log, &["Can't dump ghost file"]);
        let now = heaps.verify()?;
        goes_on(&last, &now);
        last = now;
    }
    heaps.bundle.delete()
}

impl Heaps<'_> {
    /// Checks that an image's memory is not in CRIU's files. Some is: shared mappings, mappings of
    /// files, what cannot be written to, can be executed, or is shared since a fork.
    fn is_moved(&self, image: &str, memory: &Intact) -> Result<()> {
        let mut left = 0;
        for entry in fs::read_dir(self.bundle.image_path(image))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("pages-") {
                left += entry.metadata()?.len();
            }
        }
        ensure!(
            left <= memory.bytes / 2,
            "of {} bytes CRIU has {left}: {}",
            memory.bytes,
            self.stasis.last_operation()?
        );
        Ok(())
    }
}
