//! A program that is no operation of stasis takes the GPU while a container is being dumped.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use stasis_engine::error::kind::State;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::{MEMORY, PORTS, kept_off, nothing_is_reserved, state};

/// The file in which the operation reports that CRIU is about to start.
const AT_DUMP: &str = "/run/at-dump";

on_hosts!(all_cases: sid_v2, trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject(MEMORY)?;
    let home = &Bundle::make(stasis, "home", &["/bin/memcheck", "32", "10260"])?;
    let guest = &Bundle::make(stasis, "guest", &["/bin/memcheck", "16", "10261"])?;
    home.comes_up(PORTS[0], "ok 0")?;
    let here = &Here {
        stasis,
        home,
        guest,
    };
    let cases: [(&str, Case); 10] = [
        ("roll back", a_roll_back_waits),
        ("leave running", a_container_that_is_left_running_waits),
        (
            "roll back unrecorded",
            a_roll_back_that_cannot_be_recorded_waits,
        ),
        ("paused", a_paused_container_is_resumed_without_room),
        ("left paused", one_whose_checkpoint_succeeded_is_too),
        ("unrecorded", one_that_cannot_be_recorded_is_too),
        ("killed", a_killed_operation_is_waited_for_by_its_keeper),
        ("both killed", nobody_is_left_and_an_operator_recovers),
        ("recovered in vain", who_recovers_in_vain_leaves_a_keeper),
        ("suspended", kept_off::one_that_waits),
    ];
    for (count, (name, case)) in (1..).zip(cases) {
        case(here).context(name)?;
        let answer = stasis.ask_until_up(PORTS[0]).context(name)?;
        ensure!(answer == format!("ok {count}"), "{name}: {answer}");
        ensure!(state(stasis, home)? == "running", "{name}");
        stasis.set(&stasis.low_level, "")?;
    }
    one_that_waits_can_be_checkpointed(here)?;
    // The image of a container that had to wait is as good as any.
    home.restore("left-running")?;
    ensure!(stasis.ask(PORTS[0])?.as_deref() == Some("ok 2"));
    home.delete()?;
    nothing_is_reserved(stasis)
}

type Case = fn(&Here<'_>) -> Result<()>;

pub(super) struct Here<'l> {
    pub(super) stasis: &'l StasisHost,
    pub(super) home: &'l Bundle<'l>,
    pub(super) guest: &'l Bundle<'l>,
}

impl Here<'_> {
    /// Begins a checkpoint, and lets the guest take the GPU during it. Then CRIU goes on, or fails.
    pub(super) fn begin(&self, name: &str, criu: &str, room_s: u32) -> Result<Child> {
        let host = &self.stasis.host;
        host.write(AT_DUMP, "")?;
        let script =
            format!("echo there >{AT_DUMP}; while [ -e {AT_DUMP} ]; do sleep 0.05; done; {criu}");
        let settings = format!("deadlines.room_s = {room_s}\n");
        self.home.before_criu(&script, &settings)?;
        let operation = self.home.begin_checkpoint(name, &["--leave-running"])?;
        wait_until_clear(|| {
            let there = fs::read_to_string(host.path(AT_DUMP))?;
            Ok(there
                .is_empty()
                .then(|| "CRIU is not about to start".to_owned()))
        })?;
        self.guest.comes_up(PORTS[1], "ok 0")?;
        host.run(&["rm", AT_DUMP])?;
        Ok(operation)
    }

    pub(super) fn fails(&self, operation: Child) -> Result<String> {
        let output = operation.wait_with_output()?;
        ensure!(!output.status.success(), "it had no room");
        ensure!(state(self.stasis, self.home)? == "checkpointed");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Resumes once, as containerd does after each checkpoint, successful or not: the container
    /// goes on, and waits for its GPU.
    fn resumes_without_room(&self) -> Result<()> {
        ensure!(self.home.status()? == "paused");
        self.home.resume()?;
        ensure!(self.home.status()? == "running");
        ensure!(state(self.stasis, self.home)? == "checkpointed");
        let notes = self.stasis.operation("resume")?["notes"].to_string();
        assert_contains(&notes, &["has 39 MiB free", "gives them their GPU back"]);
        Ok(())
    }

    /// The guest leaves, and no program calls stasis.
    fn guest_leaves(&self) -> Result<()> {
        ensure!(self.stasis.ask(PORTS[1])?.as_deref() == Some("ok 1"));
        self.guest.delete()?;
        self.stasis.nothing_to_put_right()
    }

    /// Kills a checkpoint and its keeper while they wait for room.
    fn both_are_killed(&self, name: &str) -> Result<()> {
        let mut operation = self.begin(name, "exit 1", 3600)?;
        self.is_rolling_back()?;
        self.stasis.kill_keepers()?;
        kill_it(&operation)?;
        operation.wait()?;
        ensure!(state(self.stasis, self.home)? == "checkpointed");
        Ok(())
    }

    /// Waits until an operation has begun to roll back, and has found no room.
    fn is_rolling_back(&self) -> Result<()> {
        let progress = self.home.record().join("progress.json");
        wait_until_clear(|| {
            let now = fs::read_to_string(&progress).unwrap_or_default();
            Ok((!now.contains("roll back")).then_some(now))
        })
    }
}

const WAITS: [&str; 4] = [
    "has 39 MiB free, and its container needs 97 MiB there",
    "its GPU contents are safe in host memory",
    "gives them their GPU back by itself as soon as there is room",
    "stasis process",
];

fn a_roll_back_waits(here: &Here<'_>) -> Result<()> {
    let operation = here.begin("failed", "exit 1", 1)?;
    let message = here.fails(operation)?;
    assert_contains(&message, &WAITS);
    let failure = here.home.failure()?.context("no failure")?;
    ensure!(failure.state == Some(State::Waiting), "{failure:?}");
    let recover = [PROGRAM, "recover", "home", "--json"];
    let waits = here
        .stasis
        .host
        .command(recover[0])
        .args(&recover[1..])
        .output()?;
    let waits = String::from_utf8_lossy(&waits.stdout).into_owned();
    assert_contains(&waits, &["\"waiting\"", "has 39 MiB free"]);
    here.guest_leaves()?;
    let recovered = here.stasis.operation("recover")?;
    ensure!(recovered.get("error").is_none(), "{recovered}");
    ensure!(!here.home.image_path("failed/stasis.json").exists());
    Ok(())
}

/// The record from before the dump is enough for the keeper, and the image is given up.
fn a_roll_back_that_cannot_be_recorded_waits(here: &Here<'_>) -> Result<()> {
    let record = here.home.record();
    let record = record.strip_prefix(here.stasis.path("/"))?.display();
    // New versions of the records are written to these paths first.
    let in_the_way = format!("mkdir /{record}/.intent.json.new /{record}/.undo.json.new; exit 1");
    let operation = here.begin("unrecorded-failed", &in_the_way, 1)?;
    let message = here.fails(operation)?;
    assert_contains(&message, &WAITS);
    here.guest_leaves()?;
    ensure!(
        !here
            .home
            .image_path("unrecorded-failed/stasis.json")
            .exists()
    );
    Ok(())
}

fn a_container_that_is_left_running_waits(here: &Here<'_>) -> Result<()> {
    let operation = here.begin("left-running", ":", 1)?;
    let message = here.fails(operation)?;
    assert_contains(&message, &WAITS);
    assert_contains(
        &message,
        &["[no-gpu-memory]", "the image is complete and restores"],
    );
    here.guest_leaves()
}

fn a_paused_container_is_resumed_without_room(here: &Here<'_>) -> Result<()> {
    here.home.pause()?;
    let output = here.begin("paused", "exit 1", 1)?.wait_with_output()?;
    assert_contains(&String::from_utf8_lossy(&output.stderr), &WAITS);
    here.resumes_without_room()?;
    here.guest_leaves()
}

fn one_whose_checkpoint_succeeded_is_too(here: &Here<'_>) -> Result<()> {
    here.home.pause()?;
    ensure!(here.begin("left-paused", ":", 1)?.wait()?.success());
    here.resumes_without_room()?;
    // This checkpoint finds it paused and off the GPU, and leaves it so.
    here.stasis.set(&here.stasis.low_level, "")?;
    here.home.pause()?;
    here.home.checkpoint("paused-again", &["--leave-running"])?;
    here.resumes_without_room()?;
    here.guest_leaves()
}

/// The record of an earlier operation is enough for the keeper.
fn one_that_cannot_be_recorded_is_too(here: &Here<'_>) -> Result<()> {
    here.home.pause()?;
    ensure!(here.begin("unrecorded", ":", 1)?.wait()?.success());
    // The new version of the record is written to this path first.
    let in_the_way = here.home.record().join(".intent.json.new");
    fs::create_dir(in_the_way).context("nothing is recorded")?;
    here.resumes_without_room()?;
    here.guest_leaves()
}

fn a_killed_operation_is_waited_for_by_its_keeper(here: &Here<'_>) -> Result<()> {
    let mut operation = here.begin("killed", "exit 1", 3600)?;
    here.is_rolling_back()?;
    kill_it(&operation)?;
    operation.wait()?;
    here.guest_leaves()
}

fn nobody_is_left_and_an_operator_recovers(here: &Here<'_>) -> Result<()> {
    here.both_are_killed("both")?;
    here.guest.delete()?;
    let recovered = here.stasis.run_for_text(&[PROGRAM, "recover", "home"])?;
    ensure!(recovered.contains("home"), "{recovered}");
    here.stasis.nothing_to_put_right()
}

fn who_recovers_in_vain_leaves_a_keeper(here: &Here<'_>) -> Result<()> {
    here.both_are_killed("in-vain-first")?;
    let host = &here.stasis.host;
    let recovers_in_vain = || {
        let said = host.command(PROGRAM).args(["recover", "home"]).output()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_contains(&said, &["not undone yet, stasis tries again"]);
        // The keeper takes its name some time after its start.
        wait_until_clear(|| {
            let keepers = here.stasis.keepers();
            Ok((keepers.lines().count() != 1).then(|| format!("keepers: {keepers}")))
        })
    };
    recovers_in_vain()?;
    here.stasis.kill_keepers()?;
    recovers_in_vain()?;
    recovers_in_vain()?;
    here.guest_leaves()
}

/// The image has the contents from host memory, and the GPU is not needed.
fn one_that_waits_can_be_checkpointed(here: &Here<'_>) -> Result<()> {
    let operation = here.begin("in-vain", "exit 1", 0)?;
    here.fails(operation)?;
    here.stasis.set(&here.stasis.low_level, "")?;
    here.home.checkpoint("waiting", &[])?;
    here.guest_leaves()?;
    here.home.restore("waiting")?;
    ensure!(here.stasis.ask(PORTS[0])?.as_deref() == Some("ok 11"));
    here.home.delete()
}

fn kill_it(operation: &Child) -> Result<()> {
    let program = descendant(operation, "stasis-runtime")?.context("it is over")?;
    kill(program, Signal::SIGKILL)?;
    Ok(())
}
