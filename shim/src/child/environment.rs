//! The environment of the programs that we start: made, not inherited. containerd's own has its
//! administrator's variables (proxies with passwords, settings of other programs), and runc, crun,
//! CRIU and hooks obey variables.

use std::env;
use std::process::Command;

/// The variables that are passed on: places of programs, and settings of runc and crun.
const HANDED_ON: [&str; 5] = [
    // The user's systemd, for the cgroup driver of a containerd that is not root's.
    "DBUS_SESSION_BUS_ADDRESS",
    "LANG",
    // containerd's: names of runtimes are looked up there, and of hooks' interpreters.
    "PATH",
    "TMPDIR",
    // Where crun, and a runc that is not root's, keep their containers.
    "XDG_RUNTIME_DIR",
];

/// Gives a program the environment that we make. It lacks systemd's notification socket, which runc
/// would hand to the container.
pub(crate) fn make(command: &mut Command) {
    command.env_clear();
    for name in HANDED_ON {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
}
