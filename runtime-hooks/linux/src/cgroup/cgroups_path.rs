//! The cgroup that a container's specification names (OCI runtime specification, `cgroupsPath`).

use std::path::{Component, Path, PathBuf};

/// A directory's name is no longer (NAME_MAX).
const MAX_NAME: usize = 255;

/// The path of a container's cgroup in its hierarchies, from `linux.cgroupsPath`: absolute, or
/// "slice:prefix:name" for systemd (runc's docs/systemd.md). `None` for one that is relative: it
/// depends on the runtime and on the cgroup of its caller.
#[must_use]
pub fn cgroups_path(text: &str) -> Option<PathBuf> {
    if text.starts_with('/') {
        let path = Path::new(text);
        let climbs = path.components().any(|part| part == Component::ParentDir);
        return (!climbs).then(|| path.to_owned());
    }
    let mut parts = text.splitn(3, ':');
    let (slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    let unit = match (prefix, name) {
        (_, slice) if slice.ends_with(".slice") => slice.to_owned(),
        ("", name) => format!("{name}.scope"),
        (prefix, name) => format!("{prefix}-{name}.scope"),
    };
    if unit.len() > MAX_NAME || unit.contains('/') {
        return None;
    }
    // runc's default for root.
    let slice = if slice.is_empty() {
        "system.slice"
    } else {
        slice
    };
    Some(slice_path(slice)?.join(unit))
}

/// The path of a slice: "a-b.slice" lies in "a.slice", and "-.slice" is the root
/// (systemd.slice(5)). `None` for a text that is no name of a slice.
fn slice_path(slice: &str) -> Option<PathBuf> {
    let name = slice.strip_suffix(".slice")?;
    let mut path = PathBuf::from("/");
    if name == "-" {
        return Some(path);
    }
    if slice.len() > MAX_NAME || name.contains('/') || name.split('-').any(str::is_empty) {
        return None;
    }
    let ends = name.match_indices('-').map(|(end, _)| end);
    for end in ends.chain([name.len()]) {
        path.push(format!("{}.slice", &name[..end]));
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_and_systemd_paths_are_understood() {
        for (given, wanted) in [
            ("/default/c1", "/default/c1"),
            ("/kubepods/pod:1/c1", "/kubepods/pod:1/c1"),
            ("system.slice:docker:c1", "/system.slice/docker-c1.scope"),
            (
                "kubepods-burstable-pod1.slice:cri-containerd:c1",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/\
                 cri-containerd-c1.scope",
            ),
            ("-.slice::c1", "/c1.scope"),
            (":a:b.slice", "/system.slice/b.slice"),
        ] {
            assert_eq!(cgroups_path(given), Some(wanted.into()), "{given}");
        }
    }

    #[test]
    fn what_names_no_cgroup_is_refused() {
        let long = format!("{}a.slice:b:c", "a-".repeat(1 << 16));
        for given in [
            "default/c1",
            "c1",
            "",
            "/a/../../etc/c1",
            "nonsense:a:b",
            "-a.slice:b:c",
            "a--b.slice:b:c",
            "../a.slice:b:c",
            "a.slice:b:/../../c",
            &long,
        ] {
            assert_eq!(cgroups_path(given), None, "{given}");
        }
    }
}
