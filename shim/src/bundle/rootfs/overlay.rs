//! Overlays. mount(2) takes a page of options, so many layers get short names, below the directory
//! that all of them are in.

use std::io;
use std::path::Path;

use nix::mount::mount as mount_now;
use nix::sched::{CloneFlags, unshare};

use super::OVERLAY;
use super::options::Options;
use crate::error::{Error, Result};

/// The option that names the layers.
pub(super) const LAYERS: &str = "lowerdir=";
/// The bytes that mount(2) takes, with the zero at the end.
const PAGE: usize = 4096;

/// Mounts an overlay.
pub(super) fn mount(source: &str, options: &Options, target: &Path) -> Result<()> {
    let mount = |data: &str| {
        let (kind, flags) = (Some(OVERLAY), options.flags);
        Ok(mount_now(Some(source), target, kind, flags, Some(data))?)
    };
    let data = options.data.join(",");
    if data.len() < PAGE {
        return mount(&data).map_err(Error::cannot::<io::Error>("mount the overlay"));
    }
    let layers = layers(options)?;
    let in_one = common_directory(&layers);
    let in_one = in_one.map(|directory| (directory, named_below(options, directory)));
    match in_one.filter(|(_, data)| data.len() < PAGE) {
        Some((directory, data)) => in_directory(directory, || mount(&data)).map_err(Error::cannot(
            format!("mount the overlay of the layers in {}", directory.display()),
        )),
        None => Err(Error::Invalid(
            "the options of the overlay are more than a page, which is all that mount(2) takes"
                .to_owned(),
        )),
    }
}

/// The layers, which must have absolute paths: they are named from elsewhere.
fn layers(options: &Options) -> Result<Vec<&Path>> {
    let lists = options
        .data
        .iter()
        .filter_map(|option| option.strip_prefix(LAYERS));
    let layers: Vec<&Path> = lists
        .flat_map(|list| list.split(':').map(Path::new))
        .collect();
    match layers.iter().find(|layer| layer.is_relative()) {
        Some(layer) => Err(Error::Invalid(format!(
            "cannot use the layer {layer:?}: its path is not absolute"
        ))),
        None => Ok(layers),
    }
}

/// The deepest directory that all layers are below, if it is not the root.
fn common_directory<'l>(layers: &[&'l Path]) -> Option<&'l Path> {
    let (first, others) = layers.split_first()?;
    let all_below = |directory: &&Path| others.iter().all(|layer| layer.starts_with(directory));
    let common = first.parent()?.ancestors().find(all_below)?;
    common.parent().is_some().then_some(common)
}

fn named_below(options: &Options, directory: &Path) -> String {
    let rename = |layer: &str| match Path::new(layer).strip_prefix(directory) {
        Ok(below) => below.display().to_string(),
        Err(_) => layer.to_owned(),
    };
    let renamed = options
        .data
        .iter()
        .map(|option| match option.strip_prefix(LAYERS) {
            Some(layers) => {
                let layers: Vec<_> = layers.split(':').map(rename).collect();
                format!("{LAYERS}{}", layers.join(":"))
            }
            None => option.clone(),
        });
    renamed.collect::<Vec<_>>().join(",")
}

/// Acts in a thread that has a working directory of its own (unshare(2), CLONE_FS).
fn in_directory(directory: &Path, act: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            unshare(CloneFlags::CLONE_FS)?;
            std::env::set_current_dir(directory)?;
            act()
        });
        let panicked = |_| Err(io::Error::other("the mounting thread panicked"));
        acting.join().unwrap_or_else(panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(below: &str, count: usize) -> Options {
        let layers: Vec<_> = (0..count)
            .map(|number| format!("{below}/{number}/fs"))
            .collect();
        let given = [
            "index=off".to_owned(),
            format!("{LAYERS}{}", layers.join(":")),
        ];
        Options::parse(&given).unwrap()
    }

    #[test]
    fn many_layers_are_named_below_their_directory() {
        let options = options("/var/lib/x", 300);
        let layers = layers(&options).unwrap();
        let common = common_directory(&layers).unwrap();
        assert_eq!(common, Path::new("/var/lib/x"));
        let named = named_below(&options, common);
        assert!(
            named.starts_with("index=off,lowerdir=0/fs:1/fs:"),
            "{named}"
        );
        assert!(named.len() < PAGE);
    }

    #[test]
    fn layers_below_different_directories_have_their_parent_in_common() {
        let common = |first, second| common_directory(&[Path::new(first), Path::new(second)]);
        assert_eq!(common("/a/b/1/fs", "/a/b/2/fs"), Some(Path::new("/a/b")));
        assert_eq!(common("/a/b/1/fs", "/a/c/2/fs"), Some(Path::new("/a")));
        assert_eq!(common("/a/1", "/b/1"), None);
        assert_eq!(common_directory(&[]), None);
    }

    #[test]
    fn relative_layers_are_refused_where_they_would_be_named_from_elsewhere() {
        assert!(layers(&options("layers", 2)).is_err());
        assert!(
            mount(
                "overlay",
                &options("layers", 900),
                Path::new("/nonexistent")
            )
            .is_err()
        );
    }
}
