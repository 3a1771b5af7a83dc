//! Overlays, of whose options mount(2) takes a page: of many layers it is told short names, below
//! the directory that all of them are in, or each layer for itself (fsconfig(2)).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount as mount_now};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::process::fchdir;

use super::OVERLAY;
use super::options::Options;
use crate::io_error::IoError;

/// The option that names the layers.
pub(super) const LAYERS: &str = "lowerdir=";
/// What mount(2) takes, with the zero at its end.
const PAGE: usize = 4096;

/// Mounts an overlay.
pub(super) fn mount(source: &str, options: &Options, target: &Path) -> Result<(), IoError> {
    const WHAT: &str = "mount the overlay";
    let data = options.data.join(",");
    if data.len() < PAGE {
        return mount_now(
            Some(source),
            target,
            Some(OVERLAY),
            options.flags,
            Some(&*data),
        )
        .map_err(IoError::cannot(WHAT));
    }
    let layers = layers(options)?;
    if let Some(directory) = common_directory(&layers) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = open(directory, flags, Mode::empty()).map_err(IoError::cannot(format!(
            "find the layers in {}",
            directory.display()
        )))?;
        let data = named_below(options, directory);
        if data.len() < PAGE {
            let flags = options.flags;
            return mount_from(&held, source, target, flags, &data).map_err(IoError::cannot(WHAT));
        }
    }
    mount_by_layers(source, options, target).map_err(IoError::cannot(WHAT))
}

/// The layers, which must have absolute paths: they are named from elsewhere.
fn layers(options: &Options) -> Result<Vec<&Path>, IoError> {
    let lists = options
        .data
        .iter()
        .filter_map(|option| option.strip_prefix(LAYERS));
    let layers: Vec<&Path> = lists
        .flat_map(|list| list.split(':').map(Path::new))
        .collect();
    match layers.iter().find(|layer| layer.is_relative()) {
        Some(layer) => Err(IoError::cannot(format!("use the layer {layer:?}"))(
            io::Error::new(io::ErrorKind::InvalidInput, "its path is not absolute"),
        )),
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

/// Mounts in a thread that has a working directory of its own (unshare(2), CLONE_FS).
fn mount_from(
    directory: &OwnedFd,
    source: &str,
    target: &Path,
    flags: MsFlags,
    data: &str,
) -> io::Result<()> {
    let mount = || -> io::Result<()> {
        unshare(CloneFlags::CLONE_FS)?;
        fchdir(directory)?;
        Ok(mount_now(
            Some(source),
            target,
            Some(OVERLAY),
            flags,
            Some(data),
        )?)
    };
    std::thread::scope(|scope| {
        let mounting = scope.spawn(mount);
        let panicked = |_| Err(io::Error::other("the mounting thread panicked"));
        mounting.join().unwrap_or_else(panicked)
    })
}

/// Names one layer after the other, which Linux 6.8 and later take.
fn mount_by_layers(source: &str, options: &Options, target: &Path) -> io::Result<()> {
    let overlay = fsopen(OVERLAY, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&overlay, "source", source)?;
    for option in &options.data {
        match (option.strip_prefix(LAYERS), option.split_once('=')) {
            (Some(layers), _) => {
                for layer in layers.split(':') {
                    fsconfig_set_string(&overlay, "lowerdir+", layer)?;
                }
            }
            (None, Some((key, value))) => fsconfig_set_string(&overlay, key, value)?,
            (None, None) => fsconfig_set_flag(&overlay, option.as_str())?,
        }
    }
    fsconfig_create(&overlay)?;
    let mounted = fsmount(
        &overlay,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes(options.flags)?,
    )?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    Ok(move_mount(&mounted, "", CWD, target, flags)?)
}

/// The flags as fsmount(2) has them.
fn attributes(mut flags: MsFlags) -> io::Result<MountAttrFlags> {
    let mut attributes = MountAttrFlags::empty();
    for (flag, attribute) in [
        (MsFlags::MS_RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MsFlags::MS_NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MsFlags::MS_NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MsFlags::MS_NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MsFlags::MS_NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (
            MsFlags::MS_NODIRATIME,
            MountAttrFlags::MOUNT_ATTR_NODIRATIME,
        ),
        (
            MsFlags::MS_STRICTATIME,
            MountAttrFlags::MOUNT_ATTR_STRICTATIME,
        ),
        // As without any.
        (MsFlags::MS_RELATIME, MountAttrFlags::empty()),
    ] {
        if flags.contains(flag) {
            attributes |= attribute;
            flags -= flag;
        }
    }
    if flags.is_empty() {
        return Ok(attributes);
    }
    Err(Errno::EINVAL.into())
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

    #[test]
    fn flags_that_cannot_be_said_are_an_error() {
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_RELATIME;
        assert_eq!(
            attributes(flags).unwrap(),
            MountAttrFlags::MOUNT_ATTR_RDONLY
        );
        assert!(attributes(MsFlags::MS_BIND).is_err());
    }
}
