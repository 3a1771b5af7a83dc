//! Restores to other GPUs than those of the checkpoint: chosen, asked for, with their device nodes and
//! nothing else in the container.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::native;

#[test]
fn with_runc() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::V2, "runc")?)
}

#[test]
fn with_crun() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::V2, "crun")?)
}

#[test]
fn with_an_older_runc() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::oldest()?, "runc")?)
}

/// The UUID of a GPU of the stand-in.
fn uuid(gpu: usize) -> String {
    format!("GPU-57415349-5300-4000-8000-00000000000{}", gpu + 1)
}

fn all_cases(lab: &Lab) -> Result<()> {
    if native::has_gpu() {
        return Ok(());
    }
    let _containerd = lab.containerd()?;
    lab.order("gpus 4")?;
    let cases: [(&str, Case); 7] = [
        ("mapped", libraries_in_use_cannot_change),
        ("moved", the_gpu_that_is_given_takes_the_place),
        ("several", all_gpus_of_a_process_are_mapped),
        (
            "hidden",
            gpus_that_nobody_sees_are_mapped_when_the_driver_asks,
        ),
        ("asked", a_map_can_be_asked_for),
        ("numbers", stale_device_numbers_are_corrected),
        (
            "libraries",
            libraries_of_another_patch_version_are_exchanged,
        ),
    ];
    for (port, (id, case)) in (10000..).zip(cases) {
        let memory = Bundle::make(lab, id, &["/bin/memcheck", "32", &port.to_string()])?;
        memory.suit_crun()?;
        case(lab, &memory, port).context(id)?;
        memory.delete()?;
        lab.set(&lab.low_level, "")?;
    }
    Ok(())
}

type Case = fn(&Lab, &Bundle<'_>, u16) -> Result<()>;

/// Starts it with these GPUs and checkpoints it.
fn begin(lab: &Lab, memory: &Bundle<'_>, port: u16, gpus: &[usize]) -> Result<()> {
    memory.give(gpus)?;
    memory.run()?;
    assert_eq!(lab.ask_until_up(port)?, "ok 0");
    memory.checkpoint("first", &[])
}

/// What the manifest of an image says that the process held: the UUIDs, and the bytes on each.
fn recorded(memory: &Bundle<'_>, image: &str) -> Result<Vec<(String, u64)>> {
    let text = fs::read(memory.image_path(image).join("stasis.json"))?;
    let manifest: Value = serde_json::from_slice(&text)?;
    let uses = manifest["processes"][0]["gpus"].as_array();
    let uses = uses
        .context("the manifest lists no GPU")?
        .iter()
        .map(|gpu| {
            let uuid = gpu["uuid"].as_str().unwrap_or_default().to_owned();
            (uuid, gpu["memory_bytes"].as_u64().unwrap_or(0) >> 20)
        });
    Ok(uses.collect())
}

fn notes(lab: &Lab) -> Result<String> {
    Ok(lab.operation("restore")?["notes"].to_string())
}

fn the_gpu_that_is_given_takes_the_place(lab: &Lab, memory: &Bundle<'_>, port: u16) -> Result<()> {
    begin(lab, memory, port, &[0])?;
    assert_eq!(recorded(memory, "first")?, [(uuid(0), 96)]);
    memory.give(&[1])?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    let noted = notes(lab)?;
    assert!(
        noted.contains(&format!("{} is restored to {}", uuid(0), uuid(1))),
        "{noted}"
    );
    // The nodes are those of the new specification, and its cgroup rules are in force.
    let nodes = memory.exec("cd /dev; ls -d nvidia*; stat -c %a nvidia1")?;
    assert_eq!(nodes, "nvidia-uvm\nnvidia1\nnvidiactl\n666");
    memory.exec(": </dev/nvidia1")?;
    assert!(memory.exec(": </dev/nvidia0").is_err());
    let said = memory.exec("mknod /tmp/old b 7 5; (: </tmp/old) 2>&1 || true")?;
    assert!(said.contains("not permitted"), "{said}");
    // It is a GPU like another: it can be checkpointed there, and stays there if it may.
    memory.checkpoint("second", &[])?;
    assert_eq!(recorded(memory, "second")?, [(uuid(1), 96)]);
    memory.give(&[0, 1])?;
    memory.restore("second")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 2"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    // The first image still goes back to where it was made.
    memory.delete()?;
    memory.give(&[0])?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia0"]);
    assert_eq!(notes(lab)?, "null");
    Ok(())
}

fn all_gpus_of_a_process_are_mapped(lab: &Lab, memory: &Bundle<'_>, port: u16) -> Result<()> {
    begin(lab, memory, port, &[0, 1])?;
    // It uses the first and has the second open, too.
    assert_eq!(recorded(memory, "first")?, [(uuid(0), 96), (uuid(1), 0)]);
    memory.give(&[2])?;
    let said = memory.restore_fails("first")?;
    assert!(
        said.contains(&format!("{} (stasis stand-in GPU)", uuid(1))),
        "{said}"
    );
    memory.give(&[1, 3])?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1", "/dev/nvidia3"]);
    memory.checkpoint("second", &[])?;
    let mut recorded = recorded(memory, "second")?;
    recorded.sort();
    assert_eq!(recorded, [(uuid(1), 0), (uuid(3), 96)]);
    Ok(())
}

/// The driver has recorded more than the process has open. It says so once, and takes a wider map.
fn gpus_that_nobody_sees_are_mapped_when_the_driver_asks(
    lab: &Lab,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    begin(lab, memory, port, &[0])?;
    memory.give(&[1])?;
    lab.order("gpus 4\nrestore hidden error:1 2")?;
    let said = memory.restore_fails("first")?;
    assert!(said.contains("CUDA_ERROR_INVALID_VALUE (1)"), "{said}");
    lab.order("gpus 4\nrestore hidden error:1 1")?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    lab.order("gpus 4")
}

fn a_map_can_be_asked_for(lab: &Lab, memory: &Bundle<'_>, port: u16) -> Result<()> {
    begin(lab, memory, port, &[0])?;
    memory.give(&[0, 1, 2])?;
    let settings = |new| {
        format!(
            "restore.gpu_map = {{ \"{}\" = \"{}\" }}\n",
            uuid(0),
            uuid(new)
        )
    };
    lab.set(&lab.low_level, &settings(2))?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia2"]);
    memory.delete()?;
    // The container's own word comes first.
    let annotate = |map: String| {
        memory.change(|spec| spec["annotations"] = json!({ "io.stasis.gpu-map": map }))
    };
    annotate(format!("{}={}", uuid(0), uuid(1)))?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    memory.delete()?;
    for (map, part) in [
        (
            format!("{}={}", uuid(0), uuid(3)),
            "the new container is not given",
        ),
        (uuid(0), "not of the form OLD=NEW"),
    ] {
        annotate(map)?;
        let said = memory.restore_fails("first")?;
        assert!(
            said.contains(part) && said.contains("io.stasis.gpu-map"),
            "{said}"
        );
        assert!(said.contains("nothing was changed"), "{said}");
    }
    Ok(())
}

/// The caller brings the specification of another day, when nvidia-uvm had another major number.
fn stale_device_numbers_are_corrected(lab: &Lab, memory: &Bundle<'_>, port: u16) -> Result<()> {
    begin(lab, memory, port, &[0])?;
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
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    memory.exec(": </dev/nvidia-uvm")?;
    let noted = notes(lab)?;
    assert!(
        noted.contains("/dev/nvidia-uvm is 7:7 here, not 7:77"),
        "{noted}"
    );
    memory.delete()?;
    // And an image whose nodes are another device, or are gone, in a `/dev` with other things.
    memory.restore("first")?;
    memory.exec(
        "cd /dev; rm nvidia-uvm nvidiactl; mknod nvidia-uvm b 7 77; mkdir nvidia9; ln -s /etc nvidia-x",
    )?;
    memory.checkpoint("old", &[])?;
    memory.restore("old")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    let numbers = memory.exec("cd /dev; stat -c '%n %t:%T' nvidia-uvm nvidiactl nvidia0")?;
    assert_eq!(numbers, "nvidia-uvm 7:7\nnvidiactl 7:6\nnvidia0 7:5");
    memory.exec("test -d /dev/nvidia9 && test -h /dev/nvidia-x")?;
    Ok(())
}

/// A bind mount of a driver library that no process has mapped follows the driver to its next version.
fn libraries_of_another_patch_version_are_exchanged(
    lab: &Lab,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    let library = |version: &str| format!("/opt/driver/libnvidia-encode.so.{version}");
    let (old, new) = (library("580.95.05"), library("580.105.08"));
    lab.order("gpus 4\ndriver 580.95.05")?;
    lab.host.write(&old, "old")?;
    memory.change(|spec| {
        let mount = json!({
            "destination": "/lib/libnvidia-encode.so.580.95.05", "source": old, "type": "bind",
            "options": ["bind", "ro"]
        });
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            mounts.push(mount);
        }
    })?;
    begin(lab, memory, port, &[0])?;
    lab.order("gpus 4\ndriver 580.105.08")?;
    fs::rename(lab.host.path(&old), lab.host.path(&new))?;
    lab.host.write(&new, "new")?;
    let before = memory.spec()?;
    // Asked for the very files, and put back after a restore that fails.
    lab.set(&lab.low_level, "restore.driver_libraries = \"exact\"\n")?;
    memory.restore_fails("first")?;
    lab.set(&lab.low_level, "")?;
    lab.order("gpus 4\ndriver 580.105.08\nrestore libraries error:2")?;
    memory.restore_fails("first")?;
    assert_eq!(memory.spec()?, before);
    lab.order("gpus 4\ndriver 580.105.08")?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(
        memory.exec("cat /lib/libnvidia-encode.so.580.95.05")?,
        "new"
    );
    let noted = notes(lab)?;
    assert!(noted.contains(&format!("{old} is {new} here")), "{noted}");
    lab.order("gpus 4")
}

/// CRIU maps files again by name, so code that a process was running must be the same.
fn libraries_in_use_cannot_change(lab: &Lab, memory: &Bundle<'_>, port: u16) -> Result<()> {
    let library = |version: &str| format!("/opt/mapped/libnvidia-ml.so.{version}");
    let (old, new) = (library("580.95.05"), library("580.105.08"));
    let (old_path, new_path) = (lab.host.path(&old), lab.host.path(&new));
    fs::create_dir_all(lab.host.path("/opt/mapped"))?;
    fs::copy(native::build()?.join("lib64/libnvidia-ml.so.1"), &old_path)?;
    lab.order("gpus 4\ndriver 580.95.05")?;
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
    begin(lab, memory, port, &[0])?;
    lab.order("gpus 4\ndriver 580.105.08")?;
    let contents = fs::read(&old_path)?;
    fs::rename(&old_path, &new_path)?;
    fs::write(&new_path, [&contents[..], &[0]].concat())?;
    let said = memory.restore_fails("first")?;
    let parts = [
        "has bad size",
        "made with driver 580.95.05",
        "has 580.105.08",
    ];
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
    // The same code under another name is the same code.
    fs::write(&new_path, &contents)?;
    memory.restore("first")?;
    assert_eq!(lab.ask(port)?.as_deref(), Some("ok 1"));
    lab.order("gpus 4")
}
