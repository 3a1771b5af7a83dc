//! Programs that run often, or for long beside a container, carry no client of registries; and no
//! crate knows those above it.

use std::process::Command;

use super::{refuse, repository};

const LEAN: [&str; 2] = ["stasis-runtime", "containerd-shim-stasis"];
const HEAVY: [&str; 6] = ["rustls", "ring", "ureq", "http", "clap", "stasis-transfer"];

/// Crates from the bottom up: none knows another one beside it or above it. The last ones are
/// programs, which know what they like.
const LEVELS: [&[&str]; 4] = [
    &["stasis-gpu"],
    &["stasis-engine"],
    &["stasis-group", "stasis-lifecycle"],
    &["stasis", "stasis-runtime", "stasis-transfer"],
];

fn dependencies(package: &str) -> Vec<String> {
    let arguments = [
        "tree",
        "--locked",
        "--offline",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ];
    let cargo = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--format", "{lib}", "--package", package])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(
        cargo.status.success(),
        "{}",
        String::from_utf8_lossy(&cargo.stderr)
    );
    let names = String::from_utf8(cargo.stdout).unwrap();
    names.lines().map(|name| name.replace('_', "-")).collect()
}

#[test]
fn no_crate_knows_those_above_it() {
    let mut found = Vec::new();
    let [libraries @ .., _] = &LEVELS;
    for (level, packages) in libraries.iter().enumerate() {
        let others: Vec<&str> = LEVELS[level..].concat();
        for package in *packages {
            let names = dependencies(package);
            let is_other = |name: &&String| name != package && others.contains(&name.as_str());
            let upward = names.iter().filter(is_other);
            found.extend(upward.map(|name| format!("{package}: {name}")));
        }
    }
    refuse("crates that know one above them", &found);
    let all = dependencies("stasis");
    assert!(
        LEVELS[2]
            .iter()
            .all(|name| all.contains(&(*name).to_owned()))
    );
}

#[test]
fn runtime_and_shim_carry_no_client_of_registries() {
    let mut found = Vec::new();
    for package in LEAN {
        let names = dependencies(package);
        assert!(
            names.iter().any(|name| name == "stasis-config"),
            "{names:?}"
        );
        let heavy = names
            .into_iter()
            .filter(|name| HEAVY.contains(&name.as_str()));
        found.extend(heavy.map(|name| format!("{package}: {name}")));
    }
    refuse("dependencies that these programs do without", &found);
    assert!(dependencies("stasis").iter().any(|name| name == "rustls"));
}
