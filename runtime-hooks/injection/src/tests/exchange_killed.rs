//! Our process is killed between the steps in which contents are exchanged; they are repeated.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use stasis_linux::ProcessRef;
use stasis_linux::procfs::children;
use stasis_remote_call::{memory, reap};

use super::contents::{THREADS, comes_back, in_memory, suspended_in};
use super::detach::{is_locked, state};
use super::program::{Variant, Workload};
use crate::area::{in_process, make};
use crate::detach::{MapFile, map, unmap, unmap_calls};
use crate::private::memory_beside;
use crate::{Sharing, Span, contents_of, make_private};

/// Environment variable with the work of the process that is killed: see [`Exchange`].
const JOB: &str = "STASIS_TEST_EXCHANGE";

/// The work, up to which step.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Exchange {
    Unmap(usize),
    FillShared(usize),
    FillPrivate(usize),
    MakePrivate,
}

/// Not a test: the process that is killed. It prints a line at its step.
#[test]
#[ignore = "started by others"]
fn the_process_that_exchanges() {
    let Ok(job) = std::env::var(JOB) else { return };
    let (pid, contents, file, exchange): (i32, Span, String, Exchange) =
        serde_json::from_str(&job).unwrap();
    let process = ProcessRef::open(pid).unwrap().unwrap();
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mapping = |sharing| MapFile {
        contents,
        file: &file,
        offset: 0,
        sharing,
    };
    in_process(&process, |proxy| {
        let done = match exchange {
            Exchange::Unmap(steps) => make(proxy, &unmap_calls(contents)[..steps]),
            Exchange::FillShared(steps) => {
                let mapping = mapping(Sharing::Shared);
                let inside = mapping.received(proxy)?;
                make(proxy, &mapping.calls(inside)[..steps])
            }
            Exchange::FillPrivate(steps) => {
                let mapping = mapping(Sharing::Private);
                let inside = mapping.received(proxy)?;
                make(proxy, &mapping.calls(inside)[..steps])
            }
            Exchange::MakePrivate => {
                let beside = memory_beside(proxy, contents.length)?;
                memory::write(pid, beside.start, &[1; 4096])
            }
        };
        println!("come to its step: {done:?}");
        let _ = std::io::stdin().lines().next();
        Ok(())
    })
    .unwrap();
}

/// Kills the process in the midst of it; the program has a child that is never reported to it.
fn killed_in(exchange: &Exchange, workload: &Workload, contents: Span, file: &File) {
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let job = (workload.pid(), contents, path, exchange);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("tests::exchange_killed::the_process_that_exchanges")
        .env(JOB, serde_json::to_string(&job).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("come to its step: Ok(())")));
    child.kill().unwrap();
    child.wait().unwrap();
    let left = children(workload.pid());
    assert_eq!(left.len(), 1);
    reap(workload.pid(), &left, || false).unwrap();
}

#[test]
fn while_it_unmaps() {
    for steps in 0..=2 {
        let file = in_memory();
        let (workload, contents) = suspended_in(&file, Variant::Locked);
        let (process, before) = (workload.process(), state(&workload));
        killed_in(&Exchange::Unmap(steps), &workload, contents, &file);
        unmap(&process, contents).unwrap();
        assert!(!is_locked(&workload, contents));
        map(&process, contents, &file, 0, Sharing::Shared).unwrap();
        assert_eq!(state(&workload), before, "{steps}");
        comes_back(workload, contents);
    }
}

fn while_it_maps(sharing: Sharing, exchange: fn(usize) -> Exchange) {
    for steps in 0..=5 {
        let file = in_memory();
        let (workload, contents) = suspended_in(&file, Variant::Locked);
        let process = workload.process();
        unmap(&process, contents).unwrap();
        map(&process, contents, &file, 0, sharing).unwrap();
        let unhurt = state(&workload);
        make_a_hole(&process, contents);
        killed_in(&exchange(steps), &workload, contents, &file);
        map(&process, contents, &file, 0, sharing).unwrap();
        assert_eq!(state(&workload), unhurt, "{steps}");
        comes_back(workload, contents);
    }
}

/// Takes contents away, wherever they are.
fn make_a_hole(process: &ProcessRef, contents: Span) {
    in_process(process, |proxy| make(proxy, &unmap_calls(contents))).unwrap();
}

#[test]
fn while_it_maps_for_all() {
    while_it_maps(Sharing::Shared, Exchange::FillShared);
}

#[test]
fn while_it_maps_for_one() {
    while_it_maps(Sharing::Private, Exchange::FillPrivate);
}

/// Only the memory that it had begun is left beside.
#[test]
fn while_it_makes_them_private() {
    let file = in_memory();
    let (workload, contents) = suspended_in(&file, Variant::Lazy);
    let process = workload.process();
    let before = state(&workload);
    killed_in(&Exchange::MakePrivate, &workload, contents, &file);
    assert_eq!(contents_of(&process).unwrap(), [contents]);
    let left = state(&workload);
    assert_eq!(left.mapped(), before.mapped() + contents.length);
    make_private(&process, contents, THREADS).unwrap();
    assert_eq!(contents_of(&process).unwrap(), []);
    assert_eq!(state(&workload).mapped(), left.mapped());
    comes_back(workload, contents);
}
