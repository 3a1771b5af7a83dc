use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use nix::sys::signal::raise;
use signal_hook::low_level::siginfo::Sent;

use super::*;

#[test]
fn a_signal_that_came_before_the_child_was_there_is_handed_on() {
    let queued = QueuedSignals::from_now().unwrap();
    raise(Signal::SIGUSR2).unwrap();
    let mut child = Command::new("sleep")
        .arg("60")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let forward = queued.forward_to(&child);
    let ended = child.wait().unwrap();
    assert_eq!(ended.signal(), Some(SIGUSR2));
    drop(forward);
}

#[test]
fn what_the_terminal_sends_has_reached_the_child_already() {
    assert!(is_for_all(Cause::Kernel));
    assert!(!is_for_all(Cause::Sent(Sent::User)));
}
