//! The memory limits in `config.json` that a restore raises.
//!
//! The low-level runtime makes the container's cgroup and CRIU fills it in one step, so the limits
//! have to be raised before there is a cgroup. The record in the operation's directory says what
//! they were, for whoever comes after a restore that was killed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stasis_linux::cgroup::Version;
use stasis_linux::file::{self, Access, Durability};

use super::raised_limit::record;
use super::{MemoryCgroup, RaisedLimit, whole_pages};
use crate::container::spec::{Spec, SpecError};

/// The name of the record in an operation's directory.
const RECORD: &str = "raised-spec.json";
const MAX_BYTES: u64 = 1 << 20;
/// The limits of `config.json` (OCI runtime specification, "resources").
const RESOURCES: &str = "/linux/resources";
const LIMIT: &str = "memory/limit";
const SWAP: &str = "memory/swap";
/// Files of version 2, which the low-level runtimes write after all other limits.
const UNIFIED: [&str; 2] = ["unified/memory.high", "unified/memory.max"];

/// Limits of a bundle's `config.json` that are raised for a restore.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RaisedSpec {
    bundle: PathBuf,
    limits: Vec<SpecLimit>,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpecLimit {
    /// Where it is below [`RESOURCES`].
    name: String,
    from: u64,
    to: u64,
}

impl RaisedSpec {
    /// The limits that allow less than `needed` bytes; `None` if there are none.
    pub(crate) fn of(bundle: &Path, spec: &Spec, needed: u64) -> Option<Self> {
        let tight = |name| bytes(spec.tree(), name).filter(|limit| *limit < needed);
        let to = whole_pages(needed);
        let mut limits = Vec::new();
        if let Some(from) = tight(LIMIT) {
            limits.push(SpecLimit::new(LIMIT, from, to));
            // The limit with swap is raised by the same amount; -1 stays "no limit".
            if let Some(swap) = bytes(spec.tree(), SWAP) {
                let with_swap = swap.saturating_sub(from).saturating_add(to);
                limits.push(SpecLimit::new(SWAP, swap, whole_pages(with_swap)));
            }
        }
        let unified = UNIFIED
            .into_iter()
            .filter_map(|name| Some((name, tight(name)?)));
        limits.extend(unified.map(|(name, from)| SpecLimit::new(name, from, to)));
        let bundle = bundle.to_owned();
        (!limits.is_empty()).then_some(Self { bundle, limits })
    }

    /// The lowest of the limits: its name, and its bytes.
    pub(crate) fn lowest(&self) -> (&str, u64) {
        let lowest = self.limits.iter().min_by_key(|limit| limit.from);
        lowest.map_or(("", 0), |limit| (&limit.name, limit.from))
    }

    /// Raises the limits in a specification that is to be written.
    pub(crate) fn apply(&self, spec: &mut Spec) {
        for limit in &self.limits {
            limit.replace_in(spec.tree_mut(), limit.from, limit.to);
        }
    }

    /// Writes the record, before anything is changed. `cgroup` is the one that the new container
    /// will have, if it is known.
    pub(crate) fn record(&self, cgroup: Option<&MemoryCgroup>, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let path = directory.join(RECORD);
        file::replace(&path, &text, Access::Private, Durability::Durable)?;
        match cgroup {
            Some(cgroup) => record(directory, &self.in_cgroup(cgroup)),
            None => Ok(()),
        }
    }

    /// What the low-level runtime makes of the limits in a cgroup.
    fn in_cgroup(&self, cgroup: &MemoryCgroup) -> Vec<RaisedLimit> {
        let version = cgroup.cgroup.version();
        let named = self.limits.iter().filter_map(|limit| {
            let file = match (limit.name.as_str(), version) {
                (LIMIT, Version::V1) => "memory.limit_in_bytes",
                (SWAP, Version::V1) => "memory.memsw.limit_in_bytes",
                (LIMIT, Version::V2) => "memory.max",
                // That of swap alone, which stays as it is.
                (SWAP, Version::V2) => return None,
                (unified, _) => unified.strip_prefix("unified/")?,
            };
            Some((cgroup.cgroup.directory().join(file), limit))
        });
        // Of two that set the same file, the last.
        let by_file: BTreeMap<PathBuf, &SpecLimit> = named.collect();
        let limits = by_file.into_iter();
        let raised = limits.map(|(file, limit)| RaisedLimit::new(file, limit.from, limit.to));
        raised.collect()
    }

    /// The resources with the former limits, for the low-level runtime's `update`. It forgets the
    /// members of `unified` that it is not given, and not those of `memory`.
    pub(crate) fn resources(&self, spec: &Spec) -> Value {
        let mut resources = Map::new();
        for part in ["memory", "unified"] {
            let found = spec.tree().pointer(&format!("{RESOURCES}/{part}"));
            resources.extend(found.map(|found| (part.to_owned(), found.clone())));
        }
        let mut tree = json!({ "linux": { "resources": resources } });
        for limit in &self.limits {
            limit.replace_in(&mut tree, limit.to, limit.from);
        }
        tree["linux"]["resources"].take()
    }
}

impl SpecLimit {
    fn new(name: &str, from: u64, to: u64) -> Self {
        let name = name.to_owned();
        Self { name, from, to }
    }

    /// Replaces one value by another; a third one is somebody else's, and stays.
    fn replace_in(&self, tree: &mut Value, from: u64, to: u64) {
        if bytes(tree, &self.name) != Some(from) {
            return;
        }
        if let Some(place) = tree.pointer_mut(&format!("{RESOURCES}/{}", self.name)) {
            *place = match place {
                // The values of `unified` are texts.
                Value::String(_) => json!(to.to_string()),
                _ => json!(to),
            };
        }
    }
}

/// Puts the limits back in the `config.json` that a restore has changed.
pub(super) fn put_back(directory: &Path) -> io::Result<()> {
    let path = directory.join(RECORD);
    let Some(text) = file::read(&path, MAX_BYTES)? else {
        return Ok(());
    };
    let raised: RaisedSpec = serde_json::from_slice(&text)?;
    match Spec::read(&raised.bundle) {
        Ok(mut spec) => {
            let found = spec.tree().clone();
            for limit in &raised.limits {
                limit.replace_in(spec.tree_mut(), limit.to, limit.from);
            }
            if *spec.tree() != found {
                spec.write().map_err(io::Error::other)?;
            }
        }
        // The bundle went with its container.
        Err(SpecError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io::Error::other(error)),
    }
    file::remove(&path)
}

/// A limit in bytes; `None` if there is none.
fn bytes(tree: &Value, name: &str) -> Option<u64> {
    let value = tree.pointer(&format!("{RESOURCES}/{name}"))?;
    match value.as_str() {
        Some(text) => parse(text.trim()),
        None => value.as_u64().filter(|limit| *limit > 0),
    }
}

/// As the kernel reads a limit: a number with or without a suffix (memparse in lib/cmdline.c).
fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests;
