//! Overlays of so many layers that their options do not fit into the page that mount(2) takes.
//!
//! The crate changes to the directory that all layers are below, and names them from there. If it
//! cannot, it ends the process: the shim, with all of a pod. So it gets a directory that this
//! process holds open, by a name below `/proc/self/fd`, to which it can always change.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// From this size the crate changes the directory: 512 bytes less than a page
/// (containerd-shim 0.12, `mount_rootfs`).
const LONG: usize = 4096 - 512;
const LAYERS: &str = "lowerdir=";

/// The options of an overlay, and the directory that they name.
#[derive(Debug)]
pub(super) struct Options {
    /// The options to mount it with.
    pub(super) options: Vec<String>,
    /// Keep it until it is mounted.
    _directory: Option<OwnedFd>,
}

impl Options {
    /// Options that the crate can mount a file system with.
    ///
    /// # Errors
    ///
    /// The directory that the layers are below cannot be opened, or a layer's path is relative.
    pub(super) fn of(kind: &str, options: &[String]) -> io::Result<Self> {
        let size: usize = options.iter().map(String::len).sum();
        let unchanged = Self {
            options: options.to_vec(),
            _directory: None,
        };
        if kind != "overlay" || size < LONG {
            return Ok(unchanged);
        }
        let lists = options
            .iter()
            .filter_map(|option| option.strip_prefix(LAYERS));
        let layers: Vec<&Path> = lists
            .flat_map(|list| list.split(':').map(Path::new))
            .collect();
        if let Some(layer) = layers.iter().find(|layer| layer.is_relative()) {
            let message = format!("{layer:?} is no absolute path");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let Some(directory) = common_directory(&layers) else {
            return Ok(unchanged);
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = open(directory, flags, Mode::empty()).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        })?;
        let below = format!("/proc/self/fd/{}", held.as_raw_fd());
        let rename = |option: &String| match option.strip_prefix(LAYERS) {
            Some(layers) => format!("{LAYERS}{}", renamed(layers, directory, &below)),
            None => option.clone(),
        };
        Ok(Self {
            options: options.iter().map(rename).collect(),
            _directory: Some(held),
        })
    }
}

/// The deepest directory that all layers are below, if there are several, and one but the root.
fn common_directory<'l>(layers: &[&'l Path]) -> Option<&'l Path> {
    let (first, others) = layers.split_first()?;
    let all_below = |directory: &&Path| others.iter().all(|layer| layer.starts_with(directory));
    let common = first.parent()?.ancestors().find(all_below)?;
    (!others.is_empty() && common.parent().is_some()).then_some(common)
}

fn renamed(layers: &str, directory: &Path, below: &str) -> String {
    let rename = |layer: &str| match Path::new(layer).strip_prefix(directory) {
        Ok(rest) => format!("{below}/{}", rest.display()),
        Err(_) => layer.to_owned(),
    };
    layers.split(':').map(rename).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(below: &str, count: usize) -> Vec<String> {
        let layers: Vec<_> = (0..count)
            .map(|number| format!("{below}/{number}/fs"))
            .collect();
        vec![
            "index=off".to_owned(),
            format!("{LAYERS}{}", layers.join(":")),
        ]
    }

    #[test]
    fn short_options_stay() {
        let options = layers("/var/lib/x", 10);
        assert_eq!(Options::of("overlay", &options).unwrap().options, options);
        let options = layers("/var/lib/x", 1000);
        assert_eq!(Options::of("nfs", &options).unwrap().options, options);
    }

    #[test]
    fn many_layers_are_named_below_an_open_directory() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().to_str().unwrap();
        let named = Options::of("overlay", &layers(below, 500)).unwrap();
        let first = named.options[1].strip_prefix(LAYERS).unwrap();
        let first = first.split(':').next().unwrap();
        let held = Path::new(first).parent().and_then(Path::parent).unwrap();
        assert_eq!(
            held.canonicalize().unwrap(),
            directory.path().canonicalize().unwrap()
        );
        assert!(first.ends_with("/0/fs"), "{first}");
    }

    #[test]
    fn layers_below_different_directories_have_their_parent_in_common() {
        let common = |first, second| common_directory(&[Path::new(first), Path::new(second)]);
        assert_eq!(common("/a/b/1/fs", "/a/b/2/fs"), Some(Path::new("/a/b")));
        assert_eq!(common("/a/b/1/fs", "/a/c/2/fs"), Some(Path::new("/a")));
        assert_eq!(common("/a/1", "/b/1"), None);
        assert_eq!(common_directory(&[Path::new("/a/1")]), None);
    }

    #[test]
    fn relative_layers_are_refused_where_the_crate_would_change_the_directory() {
        assert!(Options::of("overlay", &layers("layers", 500)).is_err());
        assert!(Options::of("overlay", &layers("layers", 5)).is_ok());
    }
}
