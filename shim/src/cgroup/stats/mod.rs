//! What a cgroup has counted, as the statistics that containerd sends: `v1` and `v2` fill the
//! messages, this file reads the few formats in which the kernel writes a cgroup's files.

use std::fs;
use std::io;
use std::path::Path;

use crate::cgroup::error::CgroupError;

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

/// The content of `directory/name`; `None` if the file does not exist or cannot be read now.
pub(crate) fn text(directory: &Path, name: &str) -> Result<Option<String>, CgroupError> {
    let path = directory.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(CgroupError::Read { path, source }),
    }
}

/// ENOENT: the file does not exist. ENODEV: the cgroup was removed after the file was opened
/// (kernfs). EOPNOTSUPP: it is turned off, as "psi=0" does with the pressure files.
fn is_absent(error: &io::Error) -> bool {
    use rustix::io::Errno;

    [Errno::NOENT, Errno::NODEV, Errno::OPNOTSUPP]
        .iter()
        .any(|absent| error.raw_os_error() == Some(absent.raw_os_error()))
}

/// The only number in a file.
pub(crate) fn number(directory: &Path, name: &str, max: u64) -> Result<Option<u64>, CgroupError> {
    let Some(text) = text(directory, name)? else {
        return Ok(None);
    };
    match text.trim() {
        "max" => Ok(Some(max)),
        word => parse(directory, name, word).map(Some),
    }
}

/// Some counters of v1 are sums over CPUs that are not taken at one instant, and so may be below
/// zero for a moment; containerd reads these as 0.
pub(crate) fn parse(directory: &Path, name: &str, word: &str) -> Result<u64, CgroupError> {
    match word.parse() {
        Ok(value) => Ok(value),
        Err(_) if word.parse::<i64>().is_ok_and(i64::is_negative) => Ok(0),
        Err(_) => Err(nonsense(directory, name, word)),
    }
}

pub(crate) fn nonsense(directory: &Path, name: &str, content: &str) -> CgroupError {
    CgroupError::Content {
        path: directory.join(name),
        content: content.to_owned(),
    }
}

/// Calls `take` for every line "key value" of a file. Returns `false` if there is no such file.
pub(crate) fn each_pair(
    directory: &Path,
    name: &str,
    mut take: impl FnMut(&str, u64),
) -> Result<bool, CgroupError> {
    let Some(text) = text(directory, name)? else {
        return Ok(false);
    };
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(key), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(nonsense(directory, name, line));
        };
        take(key, parse(directory, name, value)?);
    }
    Ok(true)
}

/// Fills a message from a file of lines "key value". Skips keys without a field: newer
/// kernels have more of them than the message. Returns `false` if there is no such file.
fn fill_from_pairs<M>(
    message: &mut M,
    directory: &Path,
    name: &str,
    fields: Fields<M>,
) -> Result<bool, CgroupError> {
    each_pair(directory, name, |key, value| {
        if let Some((_, field)) = fields.iter().find(|(wanted, _)| *wanted == key) {
            *field(message) = value;
        }
    })
}

/// Fills a message from files that hold a number each: `prefix` and the key of the field.
fn fill_from_files<M>(
    message: &mut M,
    directory: &Path,
    prefix: &str,
    max: u64,
    fields: Fields<M>,
) -> Result<(), CgroupError> {
    for (name, field) in fields {
        if let Some(value) = number(directory, &format!("{prefix}{name}"), max)? {
            *field(message) = value;
        }
    }
    Ok(())
}

/// The huge page sizes ("2MB") that the hugetlb controller accounts for in this directory: the
/// files `hugetlb.<size><suffix>`, in the order of their names.
fn huge_page_sizes(directory: &Path, suffix: &str) -> Result<Vec<String>, CgroupError> {
    let read = |source| CgroupError::Read {
        path: directory.to_owned(),
        source,
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(read(error)),
    };
    let mut sizes = Vec::new();
    for entry in entries {
        let name = entry.map_err(read)?.file_name();
        let size = name
            .to_str()
            .and_then(|name| name.strip_prefix("hugetlb.")?.strip_suffix(suffix));
        // "hugetlb.2MB.rsvd.current" counts reservations, for which there is no message.
        if let Some(size) = size.filter(|size| !size.contains('.')) {
            sizes.push(size.to_owned());
        }
    }
    sizes.sort_unstable();
    Ok(sizes)
}

/// The counters of one device of the rdma controller; the same on v1 and v2.
struct RdmaDevice {
    name: String,
    handles: u32,
    objects: u32,
}

/// `rdma.current` and `rdma.max`: lines "mlx5_0 hca_handle=2 hca_object=max".
fn rdma(directory: &Path, name: &str) -> Result<Option<Vec<RdmaDevice>>, CgroupError> {
    let Some(text) = text(directory, name)? else {
        return Ok(None);
    };
    let device = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let mut device = RdmaDevice {
            name: words.next()?.to_owned(),
            handles: 0,
            objects: 0,
        };
        for word in words {
            let (key, value) = word.split_once('=')?;
            let value = match value {
                "max" => u32::MAX,
                value => value.parse().ok()?,
            };
            match key {
                "hca_handle" => device.handles = value,
                "hca_object" => device.objects = value,
                _ => {}
            }
        }
        Some(device)
    };
    text.lines()
        .map(|line| device(line).ok_or_else(|| nonsense(directory, name, line)))
        .collect::<Result<_, _>>()
        .map(Some)
}
