//! The low-level runtime's command line, and its call in the place of this process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use stasis_config::Flavor;
use stasis_linux::open_files::keep_callers_limit;

use crate::cli::oci::{Action, Invocation, grammar};
use crate::host::environment;

/// The option of runc and crun with which CRIU dumps and restores locks of files.
pub(super) const KEEPS_LOCKS: &str = "--file-locks";

impl Invocation {
    /// The arguments for the low-level runtime; for runc unchanged, byte for byte, but for locks of
    /// files.
    #[must_use]
    pub fn pass_on(&self, flavor: Flavor) -> Vec<OsString> {
        self.pass_on_with(flavor, &[])
    }

    /// The same with options of ours after the subcommand, in the place of the caller's own.
    #[must_use]
    pub fn pass_on_with(&self, flavor: Flavor, extra: &[(&str, &OsStr)]) -> Vec<OsString> {
        let Some(subcommand) = self.subcommand else {
            return self.args.clone();
        };
        let (global, rest) = self.args.split_at(subcommand + 1);
        let mut ours = extra.to_vec();
        if let (Flavor::Crun, Action::Restore(options)) = (flavor, &self.action) {
            let is_ours = |name| extra.iter().any(|(ours, _)| *ours == name);
            ours.extend(
                options
                    .paths()
                    .into_iter()
                    .filter(|(name, _)| !is_ours(*name)),
            );
        }
        let rest = match (flavor, &self.action) {
            (Flavor::Crun, Action::Restore(_) | Action::Checkpoint(_)) => {
                grammar::for_crun(rest, &ours)
            }
            _ => grammar::without(rest, &ours),
        };
        let mut args = global.to_vec();
        for (name, value) in &ours {
            args.extend([OsString::from(name), value.to_os_string()]);
        }
        args.extend(self.keeps_locks().then(|| KEEPS_LOCKS.into()));
        args.extend(rest);
        args
    }

    /// Whether locks of files are to be kept and the caller has not chosen: not every engine can
    /// say so, and CRIU dumps no process with one otherwise, and restores it without the lock.
    fn keeps_locks(&self) -> bool {
        let has_locks = matches!(self.action, Action::Checkpoint(_) | Action::Restore(_));
        has_locks && !grammar::is_given(&self.args, KEEPS_LOCKS.trim_start_matches('-'))
    }
}

/// Executes the low-level runtime in place of this process, with our environment, but for what
/// would have other code run in it or in CRIU, and all inherited descriptors, so its caller sees
/// its output and exit code. Returns only with an error.
#[must_use]
pub fn exec(low_level: &Path, args: Vec<OsString>) -> io::Error {
    let mut command = Command::new(low_level);
    keep_callers_limit(&mut command);
    environment::clean(&mut command);
    command.args(args).exec()
}
