//! The low-level runtime's command line, and its execution in place of this process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use stasis_config::Flavor;
use stasis_host::environment;
use stasis_linux::open_files::keep_callers_limit;

use crate::oci::{Action, Invocation, grammar};

/// The option of runc and crun with which CRIU dumps and restores locks of files.
pub(super) const KEEPS_LOCKS: &str = "--file-locks";

impl Invocation {
    /// Returns the arguments for the low-level runtime; runc's are unchanged, byte for byte, but
    /// for locks of files.
    pub fn pass_on(&self, flavor: Flavor) -> Vec<OsString> {
        self.pass_on_with(flavor, &[])
    }

    /// Returns the same with options of ours after the subcommand, in place of the caller's own.
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

    /// Returns whether to keep locks of files, if the caller has not chosen: not every engine has
    /// the option, without which CRIU dumps no process with a lock, and restores no lock.
    fn keeps_locks(&self) -> bool {
        let has_locks = matches!(self.action, Action::Checkpoint(_) | Action::Restore(_));
        has_locks && !grammar::is_given(&self.args, KEEPS_LOCKS.trim_start_matches('-'))
    }
}

/// Executes the low-level runtime in place of this process, with our environment, except variables
/// that would have other code run in it or in CRIU, and all inherited descriptors, so its caller
/// sees its output and exit code. Returns only with an error.
#[must_use]
pub fn exec(low_level: &Path, args: Vec<OsString>) -> io::Error {
    let mut command = Command::new(low_level);
    keep_callers_limit(&mut command);
    environment::clean(&mut command);
    command.args(args).exec()
}
