//! The packages' components, as CycloneDX (1.5) on standard output: `sbom VERSION`. Every crate
//! that is linked into one of their programs, with its licence and the checksum of `Cargo.lock`.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The packages whose programs are shipped.
const SHIPPED: [&str; 4] = [
    "stasis",
    "stasis-runtime",
    "containerd-shim-stasis",
    "stasis-criu-plugin",
];
const METADATA: [&str; 7] = [
    "metadata",
    "--locked",
    "--offline",
    "--format-version",
    "1",
    "--filter-platform",
    "x86_64-unknown-linux-gnu",
];

fn main() -> Result<()> {
    let version = env::args().nth(1).context("usage: sbom VERSION")?;
    let output = Command::new("cargo").args(METADATA).output()?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let lock = metadata["workspace_root"].as_str().context("no root")?;
    let lock = std::fs::read_to_string(format!("{lock}/Cargo.lock"))?;
    let bill = bill(&metadata, &checksums(&lock)?, &version)?;
    println!("{}", serde_json::to_string_pretty(&bill)?);
    Ok(())
}

fn bill(
    metadata: &Value,
    checksums: &HashMap<(String, String), String>,
    version: &str,
) -> Result<Value> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let shipped = packages
        .iter()
        .filter(|package| SHIPPED.iter().any(|name| package["name"] == *name));
    let roots: Vec<&str> = shipped
        .filter_map(|package| package["id"].as_str())
        .collect();
    ensure!(
        roots.len() == SHIPPED.len(),
        "not all of {SHIPPED:?} are there"
    );
    let linked = linked(metadata, roots)?;
    let components: Vec<Value> = packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| linked.contains(id)))
        .map(|package| component(package, checksums))
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "stasis", "version": version},
        },
        "components": components,
    }))
}

/// Returns the ids of `roots` and of all that is linked into them, not of build and test tools.
fn linked<'a>(metadata: &'a Value, roots: Vec<&'a str>) -> Result<BTreeSet<&'a str>> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .context("no graph")?;
    let of_id: HashMap<_, _> = nodes
        .iter()
        .map(|node| (node["id"].as_str(), node))
        .collect();
    let (mut found, mut next) = (BTreeSet::new(), roots);
    while let Some(id) = next.pop() {
        if !found.insert(id) {
            continue;
        }
        let node = of_id
            .get(&Some(id))
            .context("a crate is not in the graph")?;
        for dependency in node["deps"].as_array().into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array();
            if kinds
                .into_iter()
                .flatten()
                .any(|kind| kind["kind"].is_null())
            {
                next.extend(dependency["pkg"].as_str());
            }
        }
    }
    Ok(found)
}

fn component(package: &Value, checksums: &HashMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"expression": text("license").replace('/', " OR ")}],
    });
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// Returns the checksums of `Cargo.lock`, by name and version; this repository's crates have none.
fn checksums(lock: &str) -> Result<HashMap<(String, String), String>> {
    let lock: toml::Table = toml::from_str(lock)?;
    let packages = lock["package"]
        .as_array()
        .context("no packages in Cargo.lock")?;
    let checksum = |package: &toml::Value| {
        let text = |key| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(checksum).collect())
}
