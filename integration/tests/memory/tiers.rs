//! Where bulk memory is kept: in the image, on disk, in memory and then on disk; and images that
//! lack theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{OPERATIONS_LOG, PLUGIN, PROGRAM, StasisHost};

/// More than what is left to CRIU.
const MIB: &str = "48";
const DISK: &str = "/var/lib/stasis/memory";
const RAM: &str = "/run/stasis/memory";

#[test]
fn memory_is_where_the_settings_say() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    let _containerd = stasis.containerd()?;
    let gpu = Bundle::make(&stasis, "gpu", &["/bin/memcheck", MIB])?;
    gpu.run()?;
    stasis.ask_until_up(10000)?;
    what_is_missing_is_named(&stasis, &gpu)?;
    a_disk_has_unchanged_memory_once(&stasis, &gpu)?;
    a_full_disk_changes_nothing(&stasis, &gpu)?;
    memory_is_copied_to_disk_afterwards(&stasis, &gpu)?;
    gpu.delete()
}

fn goes_on(stasis: &StasisHost) -> Result<()> {
    let answer = stasis.ask(10000)?;
    let answer = answer.context("it does not answer")?;
    assert!(answer.starts_with("ok "), "{answer}");
    Ok(())
}

fn bulk(stasis: &StasisHost, operation: &str, what: &str) -> Result<u64> {
    let line = stasis.operation(operation)?;
    let bytes = line["bulk_memory"][what].as_u64();
    bytes.with_context(|| format!("no bulk memory was moved: {line}"))
}

fn listed(stasis: &StasisHost) -> Result<Vec<Value>> {
    let text = stasis
        .host
        .run_for_text(&[PROGRAM, "memory", "list", "--json"])?;
    Ok(serde_json::from_str(&text)?)
}

/// Portable images that are not whole, or whose plugin is gone, are refused before anything is
/// started.
fn what_is_missing_is_named(stasis: &StasisHost, gpu: &Bundle<'_>) -> Result<()> {
    gpu.checkpoint("portable", &[])?;
    assert!(bulk(stasis, "checkpoint", "bytes")? >= 48 << 20);
    assert!(listed(stasis)?.is_empty());

    stasis.set("runc", "bulk_memory.plugin = \"/nowhere.so\"\n")?;
    assert_contains(
        &gpu.restore_fails("portable")?,
        &["/nowhere.so", "make install"],
    );
    stasis.set("runc", "")?;

    let pack = pack_in(&gpu.image_path("portable"))?;
    let aside = pack.with_extension("aside");
    fs::rename(&pack, &aside)?;
    let name = pack.file_name().context("no name")?.to_string_lossy();
    assert_contains(
        &gpu.restore_fails("portable")?,
        &[&name, "is missing", "nothing was changed"],
    );
    fs::rename(&aside, &pack)?;

    let index = gpu.image_path("portable").join("stasis-memory.index");
    fs::rename(&index, &aside)?;
    assert_contains(
        &gpu.restore_fails("portable")?,
        &["stasis-memory.index", "nothing was changed"],
    );
    fs::rename(&aside, &index)?;

    gpu.restore("portable")?;
    assert!(bulk(stasis, "restore", "bytes")? > 0);
    goes_on(stasis)?;

    // The directory is used again, without the plugin: nothing of the old image must stay.
    stasis.set("runc", "bulk_memory.plugin = \"/nowhere.so\"\n")?;
    gpu.checkpoint("portable", &[])?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_contains(&notes, &["the driver and CRIU move", "/nowhere.so"]);
    assert!(!index.exists() && !pack.exists());
    gpu.restore("portable")?;
    goes_on(stasis)?;
    stasis.set("runc", "")
}

fn pack_in(directory: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "pack")
        {
            return Ok(path);
        }
    }
    bail!("no pack is in {}", directory.display())
}

fn a_disk_has_unchanged_memory_once(stasis: &StasisHost, gpu: &Bundle<'_>) -> Result<()> {
    stasis.set("runc", "bulk_memory.tier = \"disk\"\n")?;
    // It has other contents each time that it was asked.
    gpu.checkpoint("first", &["--leave-running"])?;
    let written = bulk(stasis, "checkpoint", "stored_bytes")?;
    gpu.checkpoint("second", &[])?;
    assert!(bulk(stasis, "checkpoint", "reused_bytes")? > 0);
    assert!(bulk(stasis, "checkpoint", "stored_bytes")? < written);
    assert!(pack_in(&gpu.image_path("second")).is_err());
    let kept = listed(stasis)?;
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!(kept[0]["image"], "there");

    // The second one has all that it needs. That an image is gone is believed only if it was seen
    // where it was long after it was written.
    let id = kept[0]["image_id"].as_str().context("no id")?;
    let origin = stasis.host.path(format!("{DISK}/{id}/origin.json"));
    let mut recorded: Value = serde_json::from_slice(&fs::read(&origin)?)?;
    let aside = gpu.image_path("aside");
    fs::rename(gpu.image_path("first"), &aside)?;
    let pruned = stasis.host.run_for_text(&[PROGRAM, "memory", "prune"])?;
    assert!(!pruned.contains(id), "{pruned}");
    fs::rename(&aside, gpu.image_path("first"))?;
    recorded["order"] = json!(1);
    fs::write(&origin, recorded.to_string())?;
    assert_eq!(listed(stasis)?[0]["image"], "there");
    fs::remove_dir_all(gpu.image_path("first"))?;
    let prune = |options: &[&str]| {
        let arguments = [&[PROGRAM, "memory", "prune"], options].concat();
        stasis.host.run_for_text(&arguments)
    };
    assert_contains(&prune(&[])?, &["its image is gone", "--force"]);
    assert_eq!(listed(stasis)?.len(), 2);
    let pruned: Value = serde_json::from_str(&prune(&["--force", "--json"])?)?;
    assert_eq!(pruned[0]["result"], "removed", "{pruned}");
    let kept = listed(stasis)?;
    assert_eq!(kept.len(), 1);
    gpu.restore("second")?;
    goes_on(stasis)?;

    gpu.delete()?;
    let id = kept[0]["image_id"].as_str().context("no id")?;
    stasis.host.run(&[PROGRAM, "memory", "remove", &id[..12]])?;
    assert_contains(
        &gpu.restore_fails("second")?,
        &[DISK, id, "nothing was changed"],
    );
    gpu.run()?;
    stasis.ask_until_up(10000).map(|_| ())
}

fn a_full_disk_changes_nothing(stasis: &StasisHost, gpu: &Bundle<'_>) -> Result<()> {
    stasis.host.mount_memory(16 << 20, DISK)?;
    let message = gpu.checkpoint_fails("full", &[])?;
    assert_contains(
        &message,
        &["refused [no-space]", DISK, "nothing was changed"],
    );
    let settings = "bulk_memory.tier = \"disk\"\npreflight.disk_space = \"ignore\"\n";
    stasis.set("runc", settings)?;
    for options in [&[][..], &["--leave-running"]] {
        let message = gpu.checkpoint_fails("full", options)?;
        assert_contains(
            &message,
            &["[no-space]", "cannot write /var", "runs on as before"],
        );
        goes_on(stasis)?;
        assert!(listed(stasis)?.is_empty());
        assert!(!gpu.image_path("full").join("stasis-memory.index").exists());
    }
    stasis.host.run(&["umount", DISK])?;

    // CRIU fails later, after all of it was taken.
    let ghost =
        "head -c 2000000 /dev/zero >/ghost; exec 9</ghost; rm /ghost; exec /bin/memcheck 48 10001";
    let late = Bundle::make(stasis, "late", &["/bin/sh", "-c", ghost])?;
    late.run()?;
    stasis.ask_until_up(10001)?;
    assert_contains(
        &late.checkpoint_fails("late", &[])?,
        &["ghost", "runs on as before"],
    );
    assert!(listed(stasis)?.is_empty());
    let answer = stasis.ask(10001)?.context("it does not answer")?;
    assert!(answer.starts_with("ok "), "{answer}");
    late.delete()
}

fn memory_is_copied_to_disk_afterwards(stasis: &StasisHost, gpu: &Bundle<'_>) -> Result<()> {
    stasis.set("runc", "bulk_memory.tier = \"ram\"\n")?;
    gpu.checkpoint("ram", &[])?;
    stasis.host.run(&["mountpoint", RAM])?;
    let line = durable(stasis, 1)?;
    assert!(
        line["phases"][0]["bytes"].as_u64() > Some(48 << 20),
        "{line}"
    );
    gpu.restore("ram")?;
    let kept = listed(stasis)?;
    assert_eq!(
        (&kept[0]["in_ram"], &kept[0]["durable"]),
        (&true.into(), &true.into())
    );

    // As after a restart of the machine.
    gpu.checkpoint("restarted", &[])?;
    assert!(bulk(stasis, "checkpoint", "reused_bytes")? > 0);
    durable(stasis, 2)?;
    stasis.host.run(&["umount", "--lazy", RAM])?;
    gpu.restore("restarted")?;
    goes_on(stasis)?;

    // There is no room: only what has one is there.
    stasis.set(
        "runc",
        "bulk_memory = { tier = \"ram\", ram_limit_percent = 1 }\n",
    )?;
    stasis.host.mount_memory(8 << 20, RAM)?;
    gpu.checkpoint("no-room", &["--leave-running"])?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_contains(&notes, &["goes to disk", "no room"]);
    goes_on(stasis)?;
    assert!(stasis.host.path(PLUGIN).exists());
    Ok(())
}

/// The line that says that a copy is on disk, when there are so many of them.
fn durable(stasis: &StasisHost, count: usize) -> Result<Value> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let log = fs::read_to_string(stasis.host.path(OPERATIONS_LOG))?;
        let lines = log.lines().filter(|line| line.contains("\"durable\""));
        let lines: Vec<&str> = lines.collect();
        if let Some(line) = lines.get(count - 1) {
            return Ok(serde_json::from_str(line)?);
        }
        sleep(Duration::from_millis(50));
    }
    bail!("{}", stasis.account("runc"))
}
