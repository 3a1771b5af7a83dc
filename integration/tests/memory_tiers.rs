//! Where bulk memory is kept: in the image, on disk, in memory and then on disk; and images that lack theirs.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{Lab, OPERATIONS_LOG, PLUGIN, PROGRAM};
use stasis_integration::message::says;

/// More than what is left to CRIU.
const MIB: &str = "48";
const DISK: &str = "/var/lib/stasis/memory";
const RAM: &str = "/run/stasis/memory";

#[test]
fn memory_is_where_the_settings_say() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    let gpu = Bundle::make(&lab, "gpu", &["/bin/memcheck", MIB])?;
    gpu.run()?;
    lab.ask_until_up(10000)?;
    what_is_missing_is_named(&lab, &gpu)?;
    a_disk_has_unchanged_memory_once(&lab, &gpu)?;
    memory_is_copied_to_disk_afterwards(&lab, &gpu)?;
    gpu.delete()
}

fn goes_on(lab: &Lab) -> Result<()> {
    let answer = lab.ask(10000)?.context("it does not answer")?;
    assert!(answer.starts_with("ok "), "{answer}");
    Ok(())
}

fn bulk(lab: &Lab, operation: &str, what: &str) -> Result<u64> {
    let line = lab.operation(operation)?;
    let bytes = line["bulk_memory"][what].as_u64();
    bytes.with_context(|| format!("no bulk memory was moved: {line}"))
}

fn listed(lab: &Lab) -> Result<Vec<Value>> {
    let text = lab
        .host
        .run_for_text(&[PROGRAM, "memory", "list", "--json"])?;
    Ok(serde_json::from_str(&text)?)
}

/// Portable images that are not whole, or whose plugin is gone, are refused before anything is started.
fn what_is_missing_is_named(lab: &Lab, gpu: &Bundle<'_>) -> Result<()> {
    gpu.checkpoint("portable", &[])?;
    assert!(bulk(lab, "checkpoint", "bytes")? >= 48 << 20);
    assert!(listed(lab)?.is_empty());

    lab.set("runc", "bulk_memory.enabled = false\n")?;
    let said = gpu.restore_fails("portable")?;
    says(
        &said,
        &["bulk_memory.enabled is false", "nothing was changed"],
    );
    lab.set("runc", "bulk_memory.plugin = \"/nowhere.so\"\n")?;
    says(
        &gpu.restore_fails("portable")?,
        &["/nowhere.so", "make install"],
    );
    lab.set("runc", "")?;

    let pack = pack_in(gpu.image_path("portable"))?;
    let aside = pack.with_extension("aside");
    fs::rename(&pack, &aside)?;
    let name = pack.file_name().context("no name")?.to_string_lossy();
    says(
        &gpu.restore_fails("portable")?,
        &[&name, "is missing", "nothing was changed"],
    );
    fs::rename(&aside, &pack)?;

    let index = gpu.image_path("portable").join("stasis-memory.index");
    fs::rename(&index, &aside)?;
    says(
        &gpu.restore_fails("portable")?,
        &["stasis-memory.index", "nothing was changed"],
    );
    fs::rename(&aside, &index)?;

    gpu.restore("portable")?;
    assert!(bulk(lab, "restore", "bytes")? > 0);
    goes_on(lab)?;

    // The directory is used again, without the plugin: nothing of the old image must stay.
    lab.set("runc", "bulk_memory.plugin = \"/nowhere.so\"\n")?;
    gpu.checkpoint("portable", &[])?;
    let notes = lab.operation("checkpoint")?["notes"].to_string();
    says(&notes, &["left to CRIU alone", "/nowhere.so"]);
    assert!(!index.exists() && !pack.exists());
    gpu.restore("portable")?;
    goes_on(lab)?;
    lab.set("runc", "")
}

fn pack_in(directory: PathBuf) -> Result<PathBuf> {
    for entry in fs::read_dir(&directory)? {
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

fn a_disk_has_unchanged_memory_once(lab: &Lab, gpu: &Bundle<'_>) -> Result<()> {
    lab.set("runc", "bulk_memory.tier = \"disk\"\n")?;
    // It has other contents each time that it was asked.
    gpu.checkpoint("first", &["--leave-running"])?;
    let written = bulk(lab, "checkpoint", "stored_bytes")?;
    gpu.checkpoint("second", &[])?;
    assert!(bulk(lab, "checkpoint", "reused_bytes")? > 0);
    assert!(bulk(lab, "checkpoint", "stored_bytes")? < written);
    assert!(pack_in(gpu.image_path("second")).is_err());
    let kept = listed(lab)?;
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!(kept[0]["image"], "there");

    // The second one has all that it needs.
    fs::remove_dir_all(gpu.image_path("first"))?;
    let prune = |options: &[&str]| {
        let arguments = [&[PROGRAM, "memory", "prune"], options].concat();
        lab.host.run_for_text(&arguments)
    };
    says(&prune(&[])?, &["its image is gone", "--force"]);
    assert_eq!(listed(lab)?.len(), 2);
    prune(&["--force"])?;
    let kept = listed(lab)?;
    assert_eq!(kept.len(), 1);
    gpu.restore("second")?;
    goes_on(lab)?;

    gpu.delete()?;
    let id = kept[0]["image_id"].as_str().context("no id")?;
    lab.host.run(&[PROGRAM, "memory", "remove", &id[..12]])?;
    says(
        &gpu.restore_fails("second")?,
        &[DISK, id, "nothing was changed"],
    );
    gpu.run()?;
    lab.ask_until_up(10000).map(|_| ())
}

fn memory_is_copied_to_disk_afterwards(lab: &Lab, gpu: &Bundle<'_>) -> Result<()> {
    lab.set("runc", "bulk_memory.tier = \"ram\"\n")?;
    gpu.checkpoint("ram", &[])?;
    lab.host.run(&["mountpoint", RAM])?;
    let line = durable(lab, 1)?;
    assert!(
        line["phases"][0]["bytes"].as_u64() > Some(48 << 20),
        "{line}"
    );
    gpu.restore("ram")?;
    let kept = listed(lab)?;
    assert_eq!(
        (&kept[0]["in_ram"], &kept[0]["durable"]),
        (&true.into(), &true.into())
    );

    // As after a restart of the machine.
    gpu.checkpoint("restarted", &[])?;
    assert!(bulk(lab, "checkpoint", "reused_bytes")? > 0);
    durable(lab, 2)?;
    lab.host.run(&["umount", "--lazy", RAM])?;
    gpu.restore("restarted")?;
    goes_on(lab)?;

    // There is no room: only what has one is there.
    lab.set(
        "runc",
        "bulk_memory = { tier = \"ram\", ram_limit_percent = 1 }\n",
    )?;
    lab.host
        .run(&["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", RAM])?;
    gpu.checkpoint("no-room", &["--leave-running"])?;
    let notes = lab.operation("checkpoint")?["notes"].to_string();
    says(&notes, &["goes to disk", "no room"]);
    goes_on(lab)?;
    assert!(lab.host.path(PLUGIN).exists());
    Ok(())
}

/// The line that says that a copy is on disk, when there are so many of them.
fn durable(lab: &Lab, count: usize) -> Result<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        let log = fs::read_to_string(lab.host.path(OPERATIONS_LOG))?;
        let lines = log.lines().filter(|line| line.contains("\"durable\""));
        let lines: Vec<&str> = lines.collect();
        if let Some(line) = lines.get(count - 1) {
            return Ok(serde_json::from_str(line)?);
        }
        sleep(Duration::from_millis(50));
    }
    bail!("{}", lab.account("runc"))
}
