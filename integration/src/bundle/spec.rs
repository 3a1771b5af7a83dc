//! What a bundle's specification says.

use anyhow::Result;
use serde_json::{Value, json};

use crate::image::Image;
use crate::lab::{DEVICES, DRIVER, Lab};

/// Lays out a bundle in a directory of the host: the test image's files, and the specification that
/// `runc spec` writes, which is given back. The lab's containerd must run.
///
/// # Errors
/// What ctr or runc said.
pub fn lay_out(lab: &Lab, directory: &str) -> Result<Value> {
    let rootfs = format!("{directory}/rootfs");
    lab.host.run(&["mkdir", "-p", &rootfs])?;
    let mount = ["ctr", "image", "mount", "--rw", Image::DEFAULT_NAME];
    lab.host.run(&[&mount[..], &[&rootfs]].concat())?;
    lab.host.run(&["runc", "spec", "--bundle", directory])?;
    let path = lab.host.path(format!("{directory}/config.json"));
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

/// `runc spec` describes a shell on a terminal with a network of its own.
pub(super) fn edit(spec: &mut Value, id: &str, command: &[&str]) -> Option<()> {
    spec["process"]["terminal"] = json!(false);
    spec["process"]["args"] = json!(command);
    let environment = spec["process"]["env"].as_array_mut()?;
    environment.push(json!(format!("LD_LIBRARY_PATH={DRIVER}/lib64")));
    environment.push(json!(format!("STASIS_TAG={id}")));
    spec["root"]["readonly"] = json!(false);
    spec["linux"]["namespaces"]
        .as_array_mut()?
        .retain(|namespace| namespace["type"] != "network");
    spec["mounts"].as_array_mut()?.push(json!({
        "destination": DRIVER, "source": DRIVER, "type": "bind", "options": ["rbind", "ro"]
    }));
    let devices = DEVICES
        .iter()
        .map(|path| device(path))
        .collect::<Option<Vec<_>>>()?;
    spec["linux"]["resources"]["devices"] = json!([{ "allow": true, "access": "rwm" }]);
    spec["linux"]["devices"] = json!(devices);
    Some(())
}

/// The nodes of these GPUs of the stand-in, and the rules that allow them and nothing else.
pub(super) fn devices(gpus: &[usize]) -> Option<(Value, Value)> {
    let control = ["/dev/nvidiactl", "/dev/nvidia-uvm"].map(str::to_owned);
    let gpus = gpus.iter().map(|gpu| format!("/dev/nvidia{gpu}"));
    let devices: Vec<Value> = control
        .into_iter()
        .chain(gpus)
        .map(|path| device(&path))
        .collect::<Option<_>>()?;
    let mut rules = vec![json!({ "allow": false, "access": "rwm" })];
    rules.extend(devices.iter().map(|device| {
        json!({
            "allow": true, "type": device["type"], "major": device["major"],
            "minor": device["minor"], "access": "rwm"
        })
    }));
    Some((json!(devices), json!(rules)))
}

fn device(path: &str) -> Option<Value> {
    let node = crate::native::NODES
        .iter()
        .find(|(known, ..)| *known == path)?;
    let (_, kind, major, minor) = node;
    Some(json!({
        "path": path, "type": kind.to_string(), "major": major, "minor": minor, "fileMode": 0o666
    }))
}
