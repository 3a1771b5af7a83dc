//! The counters of a cgroup, as the statistics that containerd gets: `v1` and `v2` fill the
//! messages, this file reads the few formats in which the kernel writes a cgroup's files. A file or
//! a line that cannot be read counts as missing: its controller is not enabled, the kernel does not
//! have it yet, or the cgroup is being removed.

use std::fs;
use std::path::Path;

/// Which field of a message a key, or a file, is for.
type Fields<M> = &'static [(&'static str, fn(&mut M) -> &mut u64)];

/// [`Fields`]: `key` for a field of the same name, and `key = field`.
macro_rules! fields {
    (@ $message:ident $key:ident) => { $message.$key };
    (@ $message:ident $key:ident $field:ident) => { $message.$field };
    ($($key:ident $(= $field:ident)?),+ $(,)?) => {
        &[$((stringify!($key), |message| &mut fields!(@ message $key $($field)?))),+]
    };
}

#[cfg(test)]
mod tests;
pub(crate) mod v1;
pub(crate) mod v2;

fn text(directory: &Path, name: &str) -> Option<String> {
    fs::read_to_string(directory.join(name)).ok()
}

/// The only number in a file.
fn number(directory: &Path, name: &str, max: u64) -> Option<u64> {
    match text(directory, name)?.trim() {
        "max" => Some(max),
        word => parse(word),
    }
}

/// Some counters of v1 are sums over CPUs that are not taken at one instant, and so may be below
/// zero for a moment; containerd reads these as 0.
fn parse(word: &str) -> Option<u64> {
    let negative = || word.parse::<i64>().ok().map(|_| 0);
    word.parse().ok().or_else(negative)
}

/// Calls `take` for every line "key value" of a file. Returns `false` if there is no such file.
pub(crate) fn each_pair(directory: &Path, name: &str, mut take: impl FnMut(&str, u64)) -> bool {
    let Some(text) = text(directory, name) else {
        return false;
    };
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        if let Some(value) = parse(value) {
            take(key, value);
        }
    }
    true
}

/// Sets the field that a key has. Newer kernels have more keys than the message has fields.
fn set<M>(message: &mut M, fields: Fields<M>, key: &str, value: u64) {
    if let Some((_, field)) = fields.iter().find(|(wanted, _)| *wanted == key) {
        *field(message) = value;
    }
}

/// A message from a file of lines "key value"; `None` if there is no such file.
fn from_pairs<M: Default>(directory: &Path, name: &str, fields: Fields<M>) -> Option<M> {
    let mut message = M::default();
    each_pair(directory, name, |key, value| {
        set(&mut message, fields, key, value);
    })
    .then_some(message)
}

/// Fills a message from files that hold a number each: `prefix` and the key of the field.
fn fill_from_files<M>(
    message: &mut M,
    directory: &Path,
    prefix: &str,
    max: u64,
    fields: Fields<M>,
) {
    for (name, field) in fields {
        if let Some(value) = number(directory, &format!("{prefix}{name}"), max) {
            *field(message) = value;
        }
    }
}

/// The huge page sizes ("2MB") that the hugetlb controller accounts for in this directory: the
/// files `hugetlb.<size><suffix>`, in the order of their names.
fn huge_page_sizes(directory: &Path, suffix: &str) -> Vec<String> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |name: &str| {
        let size = name.strip_prefix("hugetlb.")?.strip_suffix(suffix)?;
        // "hugetlb.2MB.rsvd.current" counts reservations, for which there is no message.
        (!size.contains('.')).then(|| size.to_owned())
    };
    let sizes = names.filter_map(|entry| size(entry.file_name().to_str()?));
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_unstable();
    sizes
}
