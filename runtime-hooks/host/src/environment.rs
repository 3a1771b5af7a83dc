//! The environment of programs that we start: made, not inherited.
//!
//! runc, crun and CRIU obey variables: `CRIU_CONFIG_FILE` names an action script (criu/config.c),
//! `CRIU_LIBS_DIR` libraries (criu/plugin.c), `HOME` a directory with a configuration file, and the
//! dynamic linker and the Go runtime have theirs. A caller whose own caller chose them (sudo, a
//! unit, a wrapper) would hand on more than it knows.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use stasis_config::exposure::{Others, exposed};

/// The distributions' directories of programs; runc without any `PATH` finds no CRIU.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The other variables that are passed on. Sockets and the directory of the user's services are for
/// runc and crun: activation, sd_notify(3), systemd's cgroup driver.
const HANDED_ON: [&str; 9] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "LANG",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    // Read by debug builds of our plugin alone.
    "STASIS_MEMORY_FAULT",
];
/// Prefixes of variables that run another program, or other libraries in a program.
const OF_THE_LINKER: &[u8] = b"LD_";
const OF_CRIU: &[u8] = b"CRIU_";

/// Gives a program the environment that we make.
pub fn make(command: &mut Command) {
    command.env_clear().env("PATH", path());
    for name in HANDED_ON {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// Leaves a program that takes our place its caller's environment, but for variables that would run
/// other code in it, or in CRIU.
pub fn clean(command: &mut Command) {
    for (name, _) in env::vars_os().filter(|(name, _)| is_foreign_code(name)) {
        command.env_remove(name);
    }
}

/// Returns the search path: our caller's directories in which only root can put programs.
pub fn path() -> OsString {
    trusted(env::var_os("PATH").as_deref())
}

fn trusted(path: Option<&OsStr>) -> OsString {
    let standard: Vec<_> = env::split_paths(PATH).collect();
    let directories = env::split_paths(path.unwrap_or_default());
    let trusted = directories.filter(|path| match exposed(path).map(|it| it.map(|it| it.to)) {
        Ok(None) => path.is_dir(),
        // Distributions have some of these writable for a group.
        Ok(Some(Others::Some)) => standard.contains(path),
        Ok(Some(Others::All)) => false,
        // A directory that does not exist.
        Err(_) => standard.contains(path),
    });
    match env::join_paths(trusted) {
        Ok(path) if !path.is_empty() => path,
        _ => PATH.into(),
    }
}

fn is_foreign_code(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(OF_THE_LINKER) || name.starts_with(OF_CRIU)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_looked_for_where_only_root_can_put_them() {
        let place = tempfile::tempdir().unwrap();
        let [ours, open] = ["ours", "open"].map(|name| place.path().join(name));
        for (directory, mode) in [(&ours, 0o755), (&open, 0o777)] {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
        }
        let (ours, open) = (ours.display(), open.display());
        for (given, made) in [
            (
                format!("{open}:{ours}::bin:/usr/bin"),
                format!("{ours}:/usr/bin"),
            ),
            (format!("{open}:."), PATH.to_owned()),
            (String::new(), PATH.to_owned()),
        ] {
            assert_eq!(trusted(Some(OsStr::new(&given))), *made, "{given}");
        }
        assert_eq!(trusted(None), PATH);
    }

    #[test]
    fn nothing_else_is_handed_on() {
        let mut command = Command::new("true");
        command
            .env("CRIU_LIBS_DIR", "/theirs")
            .env("HOME", "/theirs");
        make(&mut command);
        let names: Vec<_> = command.get_envs().map(|(name, _)| name).collect();
        let is_known = |name: &&OsStr| *name == "PATH" || HANDED_ON.iter().any(|it| name == it);
        assert!(names.iter().all(is_known), "{names:?}");
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "CRIU_CONFIG_FILE"] {
            assert!(is_foreign_code(OsStr::new(name)), "{name}");
        }
        assert!(!is_foreign_code(OsStr::new("_OCI_SYNCPIPE")));
    }
}
