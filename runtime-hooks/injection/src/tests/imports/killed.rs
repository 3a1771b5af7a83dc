//! The asking process is killed at any time.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use stasis_linux::ProcessRef;

use super::members::Pair;
use super::{Place, Visit, give_up, map_again, owners, reversed};
use crate::imports::Visited;
use crate::survey::VisitRecord;

/// Environment variable for the asking process: its work, the processes, and their records.
const ASKED: &str = "STASIS_TEST_IMPORTS";
/// How often it is killed.
const ROUNDS: u32 = 20;
/// How much later each time.
const LATER: Duration = Duration::from_micros(2500);

type Told = (String, Vec<(i32, VisitRecord, Vec<Place>)>);

/// Not a test: the process that is killed. It repeats its work.
#[test]
#[ignore = "started by others"]
fn the_process_that_asks() {
    let Ok(told) = std::env::var(ASKED) else {
        return;
    };
    let (work, told): Told = serde_json::from_str(&told).unwrap();
    let processes: Vec<ProcessRef> = told
        .iter()
        .map(|(pid, _, _)| ProcessRef::open(*pid).unwrap().unwrap())
        .collect();
    let visits = processes.iter().zip(&told);
    let visits = visits.map(|(process, (_, record, places))| {
        let visit: Visit<'_> = (Visited { process, record }, places.as_slice());
        visit
    });
    let visits: [Visit<'_>; 2] = visits.collect::<Vec<_>>().try_into().ok().unwrap();
    loop {
        if work == "identify" {
            owners(visits).unwrap();
        } else {
            give_up(visits).unwrap();
            map_again(visits).unwrap();
        }
    }
}

fn asking(pair: &Pair, work: &str) -> Child {
    let visits = pair.visits().map(|(visited, places)| {
        let Visited { process, record } = visited;
        (process.pid(), record.clone(), places.to_vec())
    });
    let told: Told = (work.to_owned(), visits.to_vec());
    let test = "tests::imports::killed::the_process_that_asks";
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored"])
        .env(ASKED, serde_json::to_string(&told).unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill_at(round: u32, pair: &Pair, work: &str) {
    let mut asking = asking(pair, work);
    sleep(LATER * round);
    asking.kill().unwrap();
    asking.wait().unwrap();
}

#[test]
fn no_tag_is_left_whenever_who_identifies_is_killed() {
    let mut pair = Pair::start();
    for round in 0..ROUNDS {
        pair.prepare();
        kill_at(round, &pair, "identify");
        pair.is_as_it_was();
    }
}

/// Some imports may be given up; the next process can map them.
#[test]
fn no_descriptor_is_left_whenever_who_maps_again_is_killed() {
    let mut pair = Pair::start();
    for round in 0..ROUNDS {
        pair.prepare();
        kill_at(round, &pair, "import");
        map_again(pair.visits()).unwrap();
        pair.is_as_it_was();
    }
}

/// The thread still works for a process that was killed.
#[test]
fn whoever_comes_after_waits_until_the_thread_has_gone() {
    let mut pair = Pair::start();
    for round in ROUNDS - 4..ROUNDS {
        pair.prepare();
        kill_at(round, &pair, "identify");
        assert_eq!(owners(pair.visits()).unwrap(), reversed());
        pair.is_as_it_was();
    }
}
