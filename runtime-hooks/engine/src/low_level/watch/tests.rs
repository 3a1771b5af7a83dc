use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// On a busy machine all that a script starts may do nothing for a while.
const LIMIT: Duration = Duration::from_secs(2);

/// Starts a script, and waits for the line that it writes.
fn shell(script: &str) -> Child {
    let mut command = Command::new("sh");
    let command = command.args(["-c", script]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    child
}

#[test]
fn a_program_that_does_nothing_is_ended_with_all_that_it_has_started() {
    let mut child = shell("sleep 600 & sleep 600 & echo up; wait");
    let mut watch = Watch::of(&child, LIMIT, Victims::All);
    let hung = watch.wait().unwrap_err();
    assert!(hung.silent >= LIMIT, "{hung}");
    assert_eq!(hung.seen.len(), 3, "{hung}");
    let text = hung.to_string();
    assert!(text.starts_with("it hung, and was ended after"), "{text}");
    assert!(text.contains("(sleep)"), "{text}");
    assert!(!child.wait().unwrap().success());
    assert_eq!(watch.alive().count(), 0);
}

#[test]
fn one_that_is_stopped_is_told_and_ended() {
    let mut child = shell("echo up; kill -STOP $$");
    let process = ProcessRef::open(i32::try_from(child.id()).unwrap());
    let process = process.unwrap().unwrap();
    while process.state().unwrap() != TaskState::Stopped {
        std::thread::yield_now();
    }
    let hung = Watch::of(&child, LIMIT, Victims::WithChildren).wait();
    let text = hung.unwrap_err().to_string();
    assert!(text.contains("was stopped"), "{text}");
    child.wait().unwrap();
}

#[test]
fn who_works_or_whose_child_works_is_left_alone() {
    let script = "while [ $(date +%s%N) -lt $((BEGAN + 5000000000)) ]; do :; done";
    let script = format!("echo up; BEGAN=$(date +%s%N); ({script}); exit 7");
    let mut child = shell(&script);
    Watch::of(&child, LIMIT, Victims::All).wait().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn what_a_child_has_left_behind_lives_on_after_a_dump() {
    // The grandchild ignores that its parents end.
    let mut child = shell("sh -c 'sh -c \"echo up; sleep 600; :\" & sleep 600; :' & sleep 600; :");
    let mut watch = Watch::of(&child, LIMIT, Victims::WithChildren);
    watch.wait().unwrap_err();
    child.wait().unwrap();
    let left: Vec<_> = watch.alive().map(|seen| seen.depth).collect();
    assert!(
        !left.is_empty() && left.iter().all(|depth| *depth > 1),
        "{left:?}"
    );
    for seen in watch.alive() {
        seen.process.kill().unwrap();
    }
}
