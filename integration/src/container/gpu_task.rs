//! Tasks with the GPU under our shim in the place of containerd's own, driven through containerd's
//! API.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use stasis_engine::operation::progress::UnderWay;

use crate::check::wait::wait_until_clear;
use crate::client::containerd::{
    Answer, Any, CALL_DEADLINE, CheckpointOptions, Containerd, INIT, Streams,
};
use crate::client::ctr::gpu_options;
use crate::host::HostKind;
use crate::host::installed::StasisHost;
use crate::host::records::CONTAINERD_ROOT;

/// The limit of answers that do not wait for a held operation, also on a busy machine. A call that
/// waits for it runs into [`CALL_DEADLINE`].
const SOON: Duration = Duration::from_secs(20);
const _: () = assert!(SOON.as_secs() < CALL_DEADLINE.as_secs());
/// The name of the stand-in's hold.
const GPU_CHECKPOINT: &str = "checkpoint";

/// CRIU reports its stage to this script, which holds it as long as the file `hold` names that.
/// Each hold has a number, so that the script's output for an earlier one does not count.
const HOLD: &str = r#"#!/bin/sh
hold=$(cat /run/criu/hold 2>/dev/null)
[ "$CRTOOLS_SCRIPT_ACTION" = "${hold%% *}" ] || exit 0
echo "$hold" >/run/criu/held
while [ "$(cat /run/criu/hold 2>/dev/null)" = "$hold" ]; do sleep 0.02; done
"#;
static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Runs checks in a host whose containerd takes our shim for its own.
pub fn in_host(
    kind: HostKind,
    checks: &[fn(&StasisHost, &Containerd) -> Result<()>],
) -> Result<()> {
    let stasis = StasisHost::of(kind)?.through_the_shim()?;
    let _containerd = stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    for check in checks {
        check(&stasis, &client)?;
        stasis.inject("")?;
    }
    Ok(())
}

/// Returns the options of a checkpoint into this directory, after which the task goes on.
#[must_use]
pub fn into(directory: &str) -> CheckpointOptions {
    CheckpointOptions {
        image_path: directory.to_owned(),
        ..CheckpointOptions::default()
    }
}

/// Returns the answer to a call that has to come soon.
pub fn soon<T>(what: &str, call: impl FnOnce() -> Answer<T>) -> Result<Answer<T>> {
    let began = Instant::now();
    let answer = call();
    let took = began.elapsed();
    ensure!(took < SOON, "{what} took {took:?}");
    Ok(answer)
}

/// Checks that a call is refused soon, in words with this part.
pub fn refused<T: std::fmt::Debug>(
    what: &str,
    part: &str,
    call: impl FnOnce() -> Answer<T>,
) -> Result<()> {
    let answer = soon(what, call)?;
    let message = format!("{answer:?}");
    ensure!(
        answer.is_err_and(|status| status.message().contains(part)),
        "{what} was not refused with {part:?}: {message}"
    );
    Ok(())
}

impl StasisHost {
    /// Makes a container with the GPU and without a task.
    pub fn create_gpu_container(&self, id: &str, options: &[&str], command: &[&str]) -> Result<()> {
        let gpu = gpu_options(id);
        let gpu: Vec<&str> = gpu.iter().map(String::as_str).collect();
        self.ctr_create(
            id,
            &[&self.chosen_with, &gpu[..], options].concat(),
            command,
        )
    }

    /// Makes a container with the GPU and starts its task, without streams; returns the pid of its
    /// first process.
    pub fn start_gpu_task(
        &self,
        client: &Containerd,
        id: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<u32> {
        self.create_gpu_container(id, options, command)?;
        self.start_task(client, id, None)
    }

    /// Does so with a counter at port 10000, which counts then.
    pub fn start_counter(&self, client: &Containerd, id: &str, options: &[&str]) -> Result<u32> {
        let pid = self.start_gpu_task(client, id, options, &["/bin/counter", "10000"])?;
        let answer = self.ask_until_up(10000)?;
        ensure!(answer == "101", "{id} answers {answer:?}");
        Ok(pid)
    }

    /// Starts a task of a container that has none, without streams; returns the init's pid.
    pub fn start_task(&self, client: &Containerd, id: &str, options: Option<Any>) -> Result<u32> {
        client.create(id, &Streams::default(), options)?;
        Ok(client.start(id, INIT)?)
    }

    /// Holds the next GPU checkpoint of a container until [`StasisHost::let_gpu_checkpoint_go`].
    pub fn hold_gpu_checkpoint(&self, id: &str) -> Result<()> {
        self.hold_driver(&format!("checkpoint {id}"), GPU_CHECKPOINT)
    }

    /// Lets that GPU checkpoint begin.
    pub fn let_gpu_checkpoint_go(&self) -> Result<()> {
        self.let_driver_go(GPU_CHECKPOINT)
    }

    /// Waits until the engine's operation on a container has reached a phase.
    ///
    /// # Errors
    /// It has not, after 30 s.
    pub fn until_phase(&self, id: &str, phase: &str) -> Result<()> {
        let directory = self.record_of(id);
        wait_until_clear(|| {
            let found = UnderWay::read(&directory)?;
            let there = found.as_ref().is_some_and(|found| found.phase == phase);
            Ok((!there).then(|| format!("{phase:?} of {id} is awaited, there is {found:?}")))
        })
    }

    /// Whether the engine has something recorded of a container.
    pub fn has_record(&self, id: &str) -> bool {
        self.record_of(id).exists()
    }

    fn record_of(&self, id: &str) -> PathBuf {
        self.record(CONTAINERD_ROOT, id)
    }

    /// From now on CRIU stops at this stage of its work ("post-dump", "post-restore", ...) until
    /// [`StasisHost::let_criu_go`].
    pub fn hold_criu(&self, stage: &str) -> Result<()> {
        self.script("/run/criu/script", HOLD)?;
        self.write("/etc/criu/default.conf", "action-script /run/criu/script\n")?;
        let number = HOLDS.fetch_add(1, Ordering::Relaxed);
        self.write("/run/criu/hold", &format!("{stage} {number}\n"))
    }

    /// Waits until CRIU has been stopped.
    ///
    /// # Errors
    /// It has not, after 30 s.
    pub fn until_criu_is_held(&self) -> Result<()> {
        let hold = fs::read(self.path("/run/criu/hold"))?;
        let held = self.path("/run/criu/held");
        wait_until_clear(|| {
            let is_held = fs::read(&held).is_ok_and(|held| held == hold);
            Ok((!is_held).then(|| "CRIU has not got there".to_owned()))
        })
    }

    /// Lets CRIU go on, now and in future.
    pub fn let_criu_go(&self) -> Result<()> {
        fs::remove_file(self.path("/etc/criu/default.conf"))?;
        Ok(fs::remove_file(self.path("/run/criu/hold"))?)
    }
}
