//! The messages to containerd: the events of tasks.

use std::ffi::OsStr;
use std::path::Path;

pub(crate) mod events;

/// The name of the runtime, by which containerd finds this program.
pub(crate) const RUNTIME: &str = "io.containerd.stasis.v2";

/// Returns the name of the runtime whose program has this path, as containerd derives one from the
/// other: installed in the place of containerd's own shim, this is that shim's runtime.
pub(crate) fn runtime_of(program: &Path) -> String {
    let name = program.file_name().and_then(OsStr::to_str);
    let name = name.and_then(|name| name.strip_prefix("containerd-shim-"));
    let parts = name.and_then(|name| name.rsplit_once('-'));
    parts.map_or_else(
        || RUNTIME.to_owned(),
        |(name, version)| format!("io.containerd.{name}.{version}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_named_as_its_program() {
        let name = |program: &str| runtime_of(Path::new(program));
        assert_eq!(name("/usr/local/bin/containerd-shim-stasis-v2"), RUNTIME);
        assert_eq!(name("containerd-shim-runc-v2"), "io.containerd.runc.v2");
        assert_eq!(name("/opt/shim"), RUNTIME);
    }
}
