//! `create` and `run`, and the restore that takes the place of a create.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use stasis_engine::request::RestoreRequest;
use stasis_lifecycle::request::{CreateRequest, CreateVerb, RootChange};

use crate::oci::Invocation;
use crate::oci::grammar::Scan;
use crate::oci::pass_on::KEEPS_LOCKS;

/// Reads the options. Unlike a restore, neither verb changes into the bundle first.
pub(super) fn request(
    scan: &Scan<'_>,
    verb: CreateVerb,
    id: String,
    cwd: &Path,
    bundle: &Path,
) -> CreateRequest {
    let within = |name| scan.value(name).map(|path| cwd.join(path));
    let descriptors = scan.value("preserve-fds").is_some_and(|count| count != "0");
    CreateRequest {
        verb,
        id,
        bundle: bundle.to_owned(),
        pid_file: within("pid-file"),
        console_socket: within("console-socket"),
        root_change: match scan.has("no-pivot") {
            true => RootChange::NoPivot,
            false => RootChange::Pivot,
        },
        without_restore: if descriptors {
            Some("preserve-fds")
        } else if scan.has("pidfd-socket") {
            Some("pidfd-socket")
        } else {
            None
        },
    }
}

impl Invocation {
    /// Returns the arguments of a restore that takes the place of a create.
    pub fn restore_instead(
        &self,
        create: &CreateRequest,
        restore: &RestoreRequest,
        extra: &[(&str, &OsStr)],
    ) -> Vec<OsString> {
        let subcommand = self.subcommand.unwrap_or_default();
        let mut args = self.args[..subcommand].to_vec();
        // If this fails, the container is created all the same, and its caller would read the error
        // there; of two such options runc takes the last.
        args.extend(["--log", "/dev/null"].map(OsString::from));
        args.extend(["restore", "--detach", KEEPS_LOCKS].map(OsString::from));
        if create.root_change == RootChange::NoPivot {
            args.push("--no-pivot".into());
        }
        let given = [
            ("--bundle", Some(&restore.bundle)),
            ("--image-path", Some(&restore.image_path)),
            ("--work-path", restore.work_path.as_ref()),
            ("--pid-file", restore.pid_file.as_ref()),
            ("--console-socket", create.console_socket.as_ref()),
        ];
        let given = given.map(|(name, path)| Some((name, path?.as_os_str())));
        for (name, value) in given.into_iter().flatten().chain(extra.iter().copied()) {
            args.extend([OsStr::new(name), value].map(OsStr::to_owned));
        }
        args.push(restore.id.clone().into());
        args
    }
}
