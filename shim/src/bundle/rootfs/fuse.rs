//! File systems in programs: `fuse.NAME` is mounted by mount.fuse(8), `fuse3.NAME` by that of
//! version 3, as containerd's own shim does.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Wanted;
use crate::child::reaper::Reaper;
use crate::child::{environment, spawn_captured};
use crate::io_error::IoError;

/// How long a helper may take; what it leaves behind serves the file system.
const HELPER: Duration = Duration::from_secs(60);
const HELPERS: [(&str, &str); 2] = [("fuse.", "mount.fuse"), ("fuse3.", "mount.fuse3")];

/// A helper, and the program that serves the file system.
#[derive(Debug)]
pub(super) struct Helper<'m> {
    program: &'static str,
    serves: &'m str,
}

impl<'m> Helper<'m> {
    /// The helper for a type of file system, if it needs one.
    pub(super) fn of(kind: &'m str) -> Option<Self> {
        let mut helpers = HELPERS.iter();
        helpers.find_map(|(prefix, program)| {
            let serves = kind.strip_prefix(prefix)?;
            Some(Self { program, serves })
        })
    }

    /// Mounts.
    pub(super) async fn mount(&self, wanted: &Wanted, reaper: &Arc<Reaper>) -> Result<(), IoError> {
        let failed = || IoError::cannot(format!("mount {} by {}", wanted.kind, self.program));
        let mut command = Command::new(self.program);
        environment::make(&mut command);
        command
            .arg(&wanted.source)
            .arg(wanted.place.find()?.path_for_others()?);
        for option in &wanted.given {
            command.args(["-o", option]);
        }
        command.args(["-t", self.serves]);
        let child = spawn_captured(reaper, command).map_err(failed())?;
        let ended = timeout(HELPER, child.wait()).await;
        let ended = ended.map_err(io::Error::from).map_err(failed())?;
        if ended.exit.status == 0 {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let text = format!("exit status {}: {}", ended.exit.status, said.trim());
        Err(failed()(io::Error::other(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_named_by_the_type() {
        let of = |kind| Helper::of(kind).map(|helper| (helper.program, helper.serves));
        assert_eq!(of("fuse.sshfs"), Some(("mount.fuse", "sshfs")));
        assert_eq!(
            of("fuse3.fuse-overlayfs"),
            Some(("mount.fuse3", "fuse-overlayfs"))
        );
        assert_eq!(of("overlay"), None);
        assert_eq!(of("fuse"), None);
    }
}
