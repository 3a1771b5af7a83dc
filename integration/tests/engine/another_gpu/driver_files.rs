//! Device nodes and libraries of the driver that differ from the ones at the checkpoint.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::c_build;
use stasis_integration::host::installed::StasisHost;

use super::{begin, notes};

/// The caller's specification is from another day, when nvidia-uvm had another major number.
pub(crate) fn stale_device_numbers_are_corrected(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    begin(memory, port, &[0])?;
    memory.change(|spec| {
        for place in ["/linux/devices", "/linux/resources/devices"] {
            let entries = spec.pointer_mut(place).and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten() {
                if entry["minor"] == 7 {
                    entry["minor"] = json!(77);
                }
            }
        }
    })?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    memory.exec(": </dev/nvidia-uvm")?;
    let noted = notes(stasis)?;
    assert_contains(&noted, &["/dev/nvidia-uvm is 7:7 here, not 7:77"]);
    memory.delete()?;
    // And an image whose device nodes are wrong or missing, in a `/dev` with other files.
    memory.restore("first")?;
    memory.exec(
        "cd /dev; rm nvidia-uvm nvidiactl; mknod nvidia-uvm b 7 77; mkdir nvidia9; ln -s /etc nvidia-x",
    )?;
    memory.checkpoint("old", &[])?;
    memory.restore("old")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    let numbers = memory.exec("cd /dev; stat -c '%n %t:%T' nvidia-uvm nvidiactl nvidia0")?;
    assert_eq!(numbers, "nvidia-uvm 7:7\nnvidiactl 7:6\nnvidia0 7:5");
    memory.exec("test -d /dev/nvidia9 && test -h /dev/nvidia-x")?;
    Ok(())
}

/// A bind mount of a driver library that no process has mapped follows the driver to its next
/// version.
pub(crate) fn libraries_of_another_patch_version_are_exchanged(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    let library = |version: &str| format!("/opt/driver/libnvidia-encode.so.{version}");
    let (old, new) = (library("580.95.05"), library("580.105.08"));
    stasis.inject("gpus 4\ndriver 580.95.05")?;
    stasis.write(&old, "old")?;
    memory.change(|spec| {
        let mount = json!({
            "destination": "/lib/libnvidia-encode.so.580.95.05", "source": old, "type": "bind",
            "options": ["bind", "ro"]
        });
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            mounts.push(mount);
        }
    })?;
    begin(memory, port, &[0])?;
    stasis.inject("gpus 4\ndriver 580.105.08")?;
    fs::rename(stasis.path(&old), stasis.path(&new))?;
    stasis.write(&new, "new")?;
    let before = memory.spec()?;
    // "exact" asks for the same files; a failed restore puts the specification back.
    stasis.set(&stasis.low_level, "restore.driver_libraries = \"exact\"\n")?;
    memory.restore_fails("first")?;
    stasis.set(&stasis.low_level, "")?;
    stasis.inject("gpus 4\ndriver 580.105.08\nrestore libraries error:2")?;
    memory.restore_fails("first")?;
    assert_eq!(memory.spec()?, before);
    stasis.inject("gpus 4\ndriver 580.105.08")?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(
        memory.exec("cat /lib/libnvidia-encode.so.580.95.05")?,
        "new"
    );
    let noted = notes(stasis)?;
    assert!(noted.contains(&format!("{old} is {new} here")), "{noted}");
    stasis.inject("gpus 4")
}

/// CRIU maps files again by name, so code that a process was running must be the same.
pub(crate) fn libraries_in_use_cannot_change(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    let library = |version: &str| format!("/opt/mapped/libnvidia-ml.so.{version}");
    let (old, new) = (library("580.95.05"), library("580.105.08"));
    let (old_path, new_path) = (stasis.path(&old), stasis.path(&new));
    fs::create_dir_all(stasis.path("/opt/mapped"))?;
    fs::copy(c_build::build()?.join("lib64/libnvidia-ml.so.1"), &old_path)?;
    stasis.inject("gpus 4\ndriver 580.95.05")?;
    let inside = "/lib/libnvidia-ml.so.580.95.05";
    memory.change(|spec| {
        let mount = json!({"destination": inside, "source": old, "type": "bind", "options": ["bind", "ro"]});
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            mounts.push(mount);
        }
        if let Some(environment) = spec["process"]["env"].as_array_mut() {
            environment.push(json!(format!("LD_PRELOAD={inside}")));
        }
    })?;
    begin(memory, port, &[0])?;
    stasis.inject("gpus 4\ndriver 580.105.08")?;
    let contents = fs::read(&old_path)?;
    fs::rename(&old_path, &new_path)?;
    fs::write(&new_path, [&contents[..], &[0]].concat())?;
    let message = memory.restore_fails("first")?;
    let parts = [
        "has bad size",
        "made with driver 580.95.05",
        "has 580.105.08",
    ];
    assert_contains(&message, &parts);
    // The same code is accepted under another name.
    fs::write(&new_path, &contents)?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    stasis.inject("gpus 4")
}
