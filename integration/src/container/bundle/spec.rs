//! The specification of a bundle.

use anyhow::Result;
use serde_json::{Value, json};

use crate::host::image::Image;
use crate::host::installed::{DEVICES, DRIVER, StasisHost};

/// Lays out a bundle in a directory of the host: the test image's files, and the specification that
/// `runc spec` writes, which is returned. The test host's containerd must run.
pub fn lay_out(stasis: &StasisHost, directory: &str) -> Result<Value> {
    let rootfs = format!("{directory}/rootfs");
    stasis.run(&["mkdir", "-p", &rootfs])?;
    let mount = ["ctr", "image", "mount", "--rw", Image::DEFAULT_NAME];
    stasis.run(&[&mount[..], &[&rootfs]].concat())?;
    stasis.run(&["runc", "spec", "--bundle", directory])?;
    let path = stasis.path(format!("{directory}/config.json"));
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

/// Edits the output of `runc spec`, a shell on a terminal with a network of its own.
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
    spec["linux"]["resources"]["devices"] = json!([{ "allow": true, "access": "rwm" }]);
    spec["linux"]["devices"] = json!(devices(&[0])?);
    Some(())
}

/// Gives these GPUs, and no other device but the usual ones.
pub(super) fn give(spec: &mut Value, gpus: &[usize]) -> Option<()> {
    let devices = devices(gpus)?;
    let mut rules = vec![json!({ "allow": false, "access": "rwm" })];
    rules.extend(devices.iter().map(|device| {
        json!({
            "allow": true, "type": device["type"], "major": device["major"],
            "minor": device["minor"], "access": "rwm"
        })
    }));
    spec["linux"]["resources"]["devices"] = json!(rules);
    spec["linux"]["devices"] = json!(devices);
    Some(())
}

fn devices(gpus: &[usize]) -> Option<Vec<Value>> {
    let of_driver = DEVICES[1..].iter().map(|path| device(path));
    let of_gpus = gpus.iter().map(|gpu| device(&format!("/dev/nvidia{gpu}")));
    of_gpus.chain(of_driver).collect()
}

fn device(path: &str) -> Option<Value> {
    let node = crate::host::c_build::NODES
        .iter()
        .find(|(known, ..)| *known == path)?;
    let (_, kind, major, minor) = node;
    Some(json!({
        "path": path, "type": kind.to_string(), "major": major, "minor": minor, "fileMode": 0o666
    }))
}
