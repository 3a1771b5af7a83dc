//! A client's new limits and metrics of a container are those of its cgroup.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use containerd_shim_protos::protobuf::MessageDyn;
use containerd_shim_protos::protobuf::reflect::ReflectValueRef;
use serde_json::json;
use stasis_integration::client::containerd::{Containerd, INIT, Resources, Streams};
use stasis_integration::host::image::Image;

use crate::{create, run, systemd_driver, until};

const MIB: u64 = 1 << 20;

pub(crate) fn are_those_of_the_cgroup(client: &Containerd) -> Result<()> {
    let id = "limited";
    // It has used memory, processor and disk before it does nothing.
    let script = "dd if=/dev/zero of=/file bs=1M count=4 && sync && cat /file >/dev/null; \
                  exec /bin/pause";
    let command = [Image::DEFAULT_NAME, id, "sh", "-c", script];
    create(client, id, &["--memory-limit", "67108864"], &command)?;
    client.create(id, &Streams::default(), systemd_driver()?)?;
    let init = client.start(id, INIT)?;
    until("it does nothing", || {
        Ok(fs::read_to_string(format!("/proc/{init}/comm"))? == "pause\n")
    })?;
    let cgroup = PathBuf::from(format!("/sys/fs/cgroup/system.slice/stasis-{id}.scope"));
    are_changed(client, id, &cgroup)?;
    are_told(client, id, &cgroup)?;
    client.kill(id, INIT, 9)?;
    client.wait(id, INIT)?;
    client.delete(id)?;
    client.remove_container(id)?;
    ensure!(!cgroup.exists(), "{} is left", cgroup.display());
    Ok(())
}

/// Changes limits. They stay when systemd writes all limits that it knows.
fn are_changed(client: &Containerd, id: &str, cgroup: &Path) -> Result<()> {
    expect(cgroup, "memory.max", "67108864")?;
    let resources = json!({
        "memory": { "limit": 128 * MIB, "reservation": 32 * MIB },
        "cpu": { "quota": 50_000, "period": 100_000, "shares": 2048 },
        "pids": { "limit": 77 },
    });
    client.update(id, &Resources(resources))?;
    for _ in 0..2 {
        expect(cgroup, "memory.max", "134217728")?;
        expect(cgroup, "memory.low", "33554432")?;
        expect(cgroup, "cpu.max", "50000 100000")?;
        expect(cgroup, "pids.max", "77")?;
        let weight = read(cgroup, "cpu.weight")?;
        ensure!(weight != "100", "cpu.weight is the default");
        run("systemctl", &["daemon-reload"])?;
    }
    Ok(())
}

/// Checks every number of the cgroup's files that the message has a field for.
fn are_told(client: &Containerd, id: &str, cgroup: &Path) -> Result<()> {
    let before = numbers(cgroup)?;
    let told = client.metrics_of_version_2(id)?;
    let after = numbers(cgroup)?;
    let mut compared = 0;
    for ((file, name, before), (_, _, after)) in before.iter().zip(&after) {
        let message: &dyn MessageDyn = match file.as_str() {
            "memory.stat" | "memory" => told.memory.as_ref().context("no memory")?,
            "memory.events" => told.memory_events.as_ref().context("no events")?,
            "cpu.stat" => told.cpu.as_ref().context("no cpu")?,
            _ => told.pids.as_ref().context("no pids")?,
        };
        // The message has fewer fields than the kernel has lines.
        let Some(found) = field(message, name) else {
            continue;
        };
        let (least, most) = (before.min(after), before.max(after));
        ensure!(
            (least..=most).contains(&&found),
            "{file} {name}: {found}, and {least} to {most} in the cgroup"
        );
        compared += 1;
    }
    ensure!(compared >= 45, "only {compared} numbers were compared");
    let memory = told.memory.as_ref().context("no memory")?;
    ensure!(
        memory.usage_limit == 128 * MIB && memory.file >= 4 * MIB,
        "{memory:?}"
    );
    ensure!(memory.psi.is_some(), "no pressure");
    let written: u64 = told.io.usage.iter().map(|device| device.wbytes).sum();
    ensure!(written >= 4 * MIB, "{:?}", told.io);
    Ok(())
}

/// Returns file, field of the message, and number.
fn numbers(cgroup: &Path) -> Result<Vec<(String, String, u64)>> {
    let mut all = Vec::new();
    for file in ["memory.stat", "memory.events", "cpu.stat"] {
        for line in read(cgroup, file)?.lines() {
            let (name, number) = line.split_once(' ').context("a line without a number")?;
            all.push((file.to_owned(), name.to_owned(), number.parse()?));
        }
    }
    for (field, kind, file) in [
        ("usage", "memory", "memory.current"),
        ("usage_limit", "memory", "memory.max"),
        ("swap_usage", "memory", "memory.swap.current"),
        ("current", "pids", "pids.current"),
        ("limit", "pids", "pids.max"),
    ] {
        let number = read(cgroup, file)?.parse();
        all.push((kind.to_owned(), field.to_owned(), number?));
    }
    Ok(all)
}

fn field(message: &dyn MessageDyn, name: &str) -> Option<u64> {
    let field = message.descriptor_dyn().field_by_name(name)?;
    match field.get_singular_field_or_default(message) {
        ReflectValueRef::U64(number) => Some(number),
        _ => None,
    }
}

fn expect(cgroup: &Path, file: &str, value: &str) -> Result<()> {
    let found = read(cgroup, file)?;
    ensure!(found == value, "{file} is {found:?} and not {value:?}");
    Ok(())
}

fn read(cgroup: &Path, file: &str) -> Result<String> {
    let path = cgroup.join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().to_owned())
}
