//! Copies to disk of what is in memory alone: they are made, whoever is killed.

use std::collections::HashSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{OPERATIONS_LOG, PROGRAM, StasisHost};

use crate::patience::patiently;

const PORT: u16 = 10000;
const DISK: &str = "/var/lib/stasis/memory";
const RAM: &str = "/run/stasis/memory";
const TIER: &str = "bulk_memory.tier = \"ram\"\n";

#[test]
fn they_outlive_who_makes_them() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    let _containerd = stasis.containerd()?;
    let gpu = Bundle::make(&stasis, "gpu", &["/bin/memcheck", "48"])?;
    gpu.run()?;
    stasis.ask_until_up(PORT)?;
    stasis.set("runc", TIER)?;
    let here = &Copies {
        stasis: &stasis,
        gpu: &gpu,
    };
    a_full_disk_and_a_killed_copy(here)?;
    the_engine_is_killed(here)?;
    engine_and_keeper_are_killed(here)?;
    two_checkpoints_at_a_time(here)?;
    what_is_replaced_takes_its_memory_with_it(here)?;
    one_bit_is_found(here)?;
    gpu.delete()
}

struct Copies<'l> {
    stasis: &'l StasisHost,
    gpu: &'l Bundle<'l>,
}

impl Copies<'_> {
    fn goes_on(&self) -> Result<()> {
        let answer = self.stasis.ask(PORT)?;
        let answer = answer.context("it does not answer")?;
        ensure!(answer.starts_with("ok "), "{answer}");
        Ok(())
    }

    fn listed(&self) -> Result<Vec<Value>> {
        let list = [PROGRAM, "memory", "list", "--json"];
        Ok(serde_json::from_str(
            &self.stasis.host.run_for_text(&list)?,
        )?)
    }

    /// How many are on disk, and how many are not.
    fn durable(&self) -> Result<(usize, usize)> {
        let listed = self.listed()?;
        let durable = listed.iter().filter(|kept| kept["durable"] == true);
        let durable = durable.count();
        Ok((durable, listed.len() - durable))
    }

    /// What has failed is tried again after 1, 2, 4 ... s.
    fn until_durable(&self, count: usize) -> Result<()> {
        patiently(|| {
            let now = self.durable()?;
            Ok((now != (count, 0)).then(|| format!("{now:?}, and not {count} on disk")))
        })
    }

    /// No more room than for CRIU's files.
    fn fill_disk(&self) -> Result<()> {
        self.stasis.host.mount_memory(16 << 20, DISK)
    }

    fn empty_disk(&self) -> Result<()> {
        // A try may be under way.
        let empty = ["umount", "--lazy", DISK];
        self.stasis.host.run(&empty).map(drop)
    }

    /// Waits until the copies of so many images have failed, and one process is left that tries
    /// again; returns its cgroups.
    fn until_tried(&self, count: usize) -> Result<String> {
        patiently(|| {
            let log = fs::read_to_string(self.stasis.host.path(OPERATIONS_LOG))?;
            let failed = not_on_disk(&log);
            Ok((failed < count).then(|| format!("{failed} of {count} copies have failed")))
        })?;
        // Each operation starts one more, which ends when it sees that another is at work.
        let mut alive = String::new();
        wait_until_clear(|| {
            let copiers = ["pgrep", "-x", "-r", "S,R,D", "stasis-durable"];
            alive = self.stasis.host.run_for_text(&copiers).unwrap_or_default();
            let count = alive.lines().count();
            Ok((count != 1).then(|| format!("{count} processes make copies")))
        })?;
        let cgroups = format!("/proc/{alive}/cgroup");
        self.stasis.host.run_for_text(&["cat", &cgroups])
    }

    /// Kills all that make copies: one that was just started has its arguments, and not yet its
    /// name.
    fn kill_copiers(&self) -> Result<()> {
        let copier = "^stasis-write-behind ";
        let kill = ["pkill", "-KILL", "-f", copier];
        self.stasis.host.run(&kill)?;
        wait_until_clear(|| {
            let alive = ["pgrep", "-r", "S,R,D", "-f", copier];
            Ok(self.stasis.host.run_for_text(&alive).ok())
        })
    }

    /// A checkpoint that ends the container, and in which a script kills whom it likes.
    fn checkpoint_with(&self, script: &str, image: &str) -> Result<()> {
        self.gpu.before_criu(script, TIER)?;
        let over = self.gpu.begin_checkpoint(image, &[])?.wait()?;
        ensure!(!over.success(), "it was not killed");
        self.stasis.set("runc", TIER)
    }

    /// As after a restart of the machine: nothing is left in memory.
    fn lose_memory(&self) -> Result<()> {
        self.stasis.host.run(&["umount", "--lazy", RAM]).map(drop)
    }

    /// Restores from what is on disk alone.
    fn is_whole(&self, image: &str) -> Result<()> {
        self.lose_memory()?;
        self.gpu.delete()?;
        self.gpu.restore(image)?;
        self.goes_on()
    }
}

/// Of how many images a copy has failed: each process that tries says so once.
fn not_on_disk(log: &str) -> usize {
    let images = log.lines().filter_map(|line| {
        let (before, _) = line.split_once(" is not on disk")?;
        before.rsplit(' ').next()
    });
    images.collect::<HashSet<_>>().len()
}

/// The copy waits for room, and is killed as it does; whoever comes next makes it.
fn a_full_disk_and_a_killed_copy(here: &Copies<'_>) -> Result<()> {
    let next: [(&str, &[&str]); 2] = [
        ("recover", &[PROGRAM, "recover", "--all"]),
        ("flush", &[PROGRAM, "memory", "flush"]),
    ];
    for (count, (name, next)) in next.iter().enumerate() {
        here.fill_disk()?;
        here.gpu.checkpoint(name, &["--leave-running"])?;
        let cgroups = here.until_tried(count + 1)?;
        let is_apart = |line: &str| line.ends_with(":/stasis");
        ensure!(cgroups.lines().any(is_apart), "{cgroups}");
        let flush = format!("{PROGRAM} memory flush; echo code $?");
        let flush = here.stasis.host.run_for_text(&["bash", "-c", &flush])?;
        assert_contains(&flush, &["MiB are needed", "tried again", "code 1"]);
        here.kill_copiers()?;
        here.empty_disk()?;
        ensure!(here.durable()? == (count, 1), "{:?}", here.durable()?);
        here.stasis.host.run(next)?;
        here.until_durable(count + 1)?;
    }
    // Room comes back, and nobody is killed.
    here.fill_disk()?;
    here.gpu.checkpoint("room", &["--leave-running"])?;
    here.until_tried(3)?;
    here.empty_disk()?;
    here.until_durable(3)?;
    // The next operation.
    here.fill_disk()?;
    here.gpu.checkpoint("next", &["--leave-running"])?;
    here.until_tried(4)?;
    here.kill_copiers()?;
    here.empty_disk()?;
    here.gpu.delete()?;
    here.gpu.restore("next")?;
    here.until_durable(4)?;
    here.goes_on()?;
    here.is_whole("next")
}

/// CRIU goes on without the engine and ends the container; the keeper does the rest.
fn the_engine_is_killed(here: &Copies<'_>) -> Result<()> {
    here.checkpoint_with("kill -9 $PPID", "by-keeper")?;
    here.until_durable(5)?;
    here.is_whole("by-keeper")
}

fn engine_and_keeper_are_killed(here: &Copies<'_>) -> Result<()> {
    here.checkpoint_with(
        "until pkill -KILL -x stasis-keeper; do sleep 0.01; done; kill -9 $PPID",
        "by-hand",
    )?;
    // CRIU is at work alone.
    wait_until_clear(|| {
        let status = here.gpu.status()?;
        Ok((status == "running").then_some(status))
    })?;
    here.stasis.host.run(&[PROGRAM, "recover", "--all"])?;
    here.until_durable(6)?;
    here.is_whole("by-hand")
}

/// One copy is made after the other, and links what the earlier one has written.
fn two_checkpoints_at_a_time(here: &Copies<'_>) -> Result<()> {
    here.fill_disk()?;
    for image in ["one", "two"] {
        here.gpu.checkpoint(image, &["--leave-running"])?;
    }
    here.until_tried(6)?;
    here.empty_disk()?;
    here.until_durable(8)?;
    let shared = format!("find {DISK} -name '*.pack' -links +1");
    let shared = here.stasis.host.run_for_text(&["bash", "-c", &shared])?;
    ensure!(!shared.is_empty(), "each has packs of its own alone");
    here.goes_on()
}

fn what_is_replaced_takes_its_memory_with_it(here: &Copies<'_>) -> Result<()> {
    here.stasis.set("runc", "bulk_memory.tier = \"disk\"\n")?;
    let of_place = || -> Result<Vec<Value>> {
        let mut listed = here.listed()?;
        listed.retain(|kept| {
            let path = kept["image_path"].as_str();
            path.is_some_and(|path| path.ends_with("gpu-place"))
        });
        Ok(listed)
    };
    here.gpu.checkpoint("place", &["--leave-running"])?;
    let first = of_place()?;
    here.gpu.checkpoint("place", &["--leave-running"])?;
    wait_until_clear(|| {
        let now = of_place()?;
        let is_later = now.len() == 1 && now[0]["image_id"] != first[0]["image_id"];
        Ok((!is_later).then(|| format!("{now:?}")))
    })?;
    ensure!(here.durable()? == (9, 0), "others are gone");
    here.is_whole("place")
}

/// `stasis memory verify` names it, and the image that cannot be restored.
fn one_bit_is_found(here: &Copies<'_>) -> Result<()> {
    let verify = |options: &str| {
        let script = format!("{PROGRAM} memory verify {options}; echo code $?");
        here.stasis.host.run_for_text(&["bash", "-c", &script])
    };
    let text = verify("")?;
    ensure!(
        text.ends_with("code 0") && !text.contains("DAMAGED"),
        "{text}"
    );
    here.gpu.checkpoint("bit", &["--leave-running"])?;
    let listed = here.listed()?;
    let is_it = |kept: &&Value| {
        kept["image_path"]
            .as_str()
            .is_some_and(|p| p.ends_with("gpu-bit"))
    };
    let bit = listed.iter().find(is_it).context("it is not listed")?;
    let id = bit["image_id"].as_str().context("no id")?;
    // Behind the header; all that is stored has a checksum.
    let flip = format!(
        "set -e; pack=$(ls {DISK}/{id}/*{id}*.pack | head -n 1); \
         byte=$(od -An -tu1 -j 5000 -N 1 $pack); \
         printf \"\\\\x$(printf %x $((byte ^ 4)))\" | dd of=$pack bs=1 seek=5000 conv=notrunc"
    );
    here.stasis.host.run(&["bash", "-c", &flip])?;
    let text = verify(&id[..8])?;
    assert_contains(
        &text,
        &["DAMAGED in 1 places", "do not match", "gpu-bit", "code 1"],
    );
    let json = verify("--json")?;
    let json: Value = serde_json::from_str(json.trim_end_matches("code 1"))?;
    let stores = json.as_array().context("no list")?;
    let damaged = stores.iter().filter(|store| store["damaged"] != 0);
    let damaged: Vec<_> = damaged.map(|store| store["image_id"].as_str()).collect();
    ensure!(damaged == [Some(id)], "{damaged:?}");
    Ok(())
}
