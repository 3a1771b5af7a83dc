//! Programs that run often, or for long beside a container, carry no client of registries; and no
//! crate knows those above it.

use std::process::Command;

use super::{refuse, repository};

/// The crates that only the operator's program is made of.
const OPERATORS: [&str; 3] = ["stasis", "stasis-locate", "stasis-transfer"];
/// A client of registries.
const CLIENT: [&str; 4] = ["rustls", "ring", "ureq", "http"];
/// Command lines and tables.
const TERMINAL: [&str; 3] = ["clap", "comfy-table", "indicatif"];

/// Crates from the bottom up: none knows another one beside it or above it. The last ones are
/// programs, which know what they like.
const LEVELS: [&[&str]; 5] = [
    &["stasis-gpu"],
    &["stasis-engine"],
    &["stasis-group", "stasis-lifecycle"],
    &["stasis-locate"],
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

fn refuse_in(packages: &[&str], heavy: &[&[&str]]) {
    let mut found = Vec::new();
    for package in packages {
        let names = dependencies(package);
        let has_config = names.iter().any(|name| name == "stasis-config");
        assert!(has_config, "{names:?}");
        let heavy = heavy.concat();
        let heavy = names.iter().filter(|name| heavy.contains(&name.as_str()));
        found.extend(heavy.map(|name| format!("{package}: {name}")));
    }
    refuse("dependencies that these packages do without", &found);
}

#[test]
fn engine_runtime_and_shim_carry_no_client_of_registries() {
    let lean = ["stasis-engine", "stasis-runtime", "containerd-shim-stasis"];
    refuse_in(&lean, &[&OPERATORS, &CLIENT, &TERMINAL]);
    assert!(dependencies("stasis").iter().any(|name| name == "rustls"));
}

#[test]
fn transfers_and_the_search_for_containers_print_nothing() {
    refuse_in(
        &["stasis-transfer", "stasis-locate"],
        &[&["stasis"], &TERMINAL],
    );
}
