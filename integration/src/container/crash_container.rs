//! A GPU container of containerd, served by our shim, whose surroundings crash.

use std::fs;
use std::path::PathBuf;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use stasis_engine::operation::progress::UnderWay;

use crate::check::wait::wait_until_clear;
use crate::client::containerd::{
    Answer, CheckpointOptions, Code, Containerd, INIT, RuntimeOptions, Streams, code, to_any,
};
use crate::host::installed::StasisHost;
use crate::host::records::CONTAINERD_ROOT;

/// The programs that have to have ended with a container.
const PROGRAMS: [&str; 5] = ["stasis-runtime", "runc", "criu", "memcheck", "tree"];
/// The limit of all waits.
const DEADLINE: Duration = Duration::from_secs(30);

/// A container; its task comes and goes.
#[derive(Debug)]
pub struct CrashContainer<'host> {
    stasis: &'host StasisHost,
    /// Its id, which is also its tag for faults of the stand-in.
    pub id: &'static str,
}

impl<'host> CrashContainer<'host> {
    /// Makes the container, without a task. The test host's shim has to be ours
    /// ([`StasisHost::through_the_shim`]).
    pub fn make(stasis: &'host StasisHost, id: &'static str, command: &[&str]) -> Result<Self> {
        stasis.ctr_run(id, &[], command)?;
        stasis.run(&["ctr", "t", "rm", "--force", id])?;
        Ok(Self { stasis, id })
    }

    /// Creates and starts its task; from a checkpoint, if one is given.
    pub fn start(&self, client: &Containerd, image: Option<&str>) -> Answer<()> {
        start(client, self.id, image)
    }

    /// Calls `act` on it in a thread of its own.
    pub fn begin(
        &self,
        client: &Containerd,
        act: impl FnOnce(&Containerd) -> Answer<()> + Send + 'static,
    ) -> Result<JoinHandle<Answer<()>>> {
        let client = client.again()?;
        Ok(spawn(move || act(&client)))
    }

    /// Begins a checkpoint into a directory.
    pub fn begin_checkpoint(
        &self,
        client: &Containerd,
        image: &'static str,
    ) -> Result<JoinHandle<Answer<()>>> {
        let id = self.id;
        self.begin(client, move |client| checkpoint(client, id, image, false))
    }

    /// Begins a restore from a directory.
    pub fn begin_restore(
        &self,
        client: &Containerd,
        image: &'static str,
    ) -> Result<JoinHandle<Answer<()>>> {
        let id = self.id;
        self.begin(client, move |client| start(client, id, Some(image)))
    }

    /// Ends its task and deletes it.
    pub fn end(&self, client: &Containerd) -> Answer<()> {
        client.kill(self.id, "", 9)?;
        client.wait(self.id, "")?;
        client.delete(self.id).map(drop)
    }

    /// Returns the directory of the engine's records of it.
    pub fn record(&self) -> PathBuf {
        self.stasis.record(CONTAINERD_ROOT, self.id)
    }

    /// Waits until an operation on it is in a phase; returns the pid of its process, in the host.
    ///
    /// # Errors
    /// The operation is not there within 30 s.
    pub fn in_phase(&self, phase: &str) -> Result<i32> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Ok(Some(under_way)) = UnderWay::read(&self.record())
                && under_way.phase == phase
            {
                return Ok(under_way.pid);
            }
            ensure!(Instant::now() < deadline, "no phase {phase:?} within 30 s");
            sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a program works on it whose name begins so, or `over` reports that none does any
    /// more.
    ///
    /// # Errors
    /// It does not within 30 s.
    pub fn in_program(&self, program: &str, over: impl Fn() -> bool) -> Result<()> {
        wait_until_clear(|| {
            let works = self
                .host_processes()?
                .iter()
                .any(|(_, name)| name.starts_with(program));
            Ok((!works && !over()).then(|| format!("no {program}")))
        })
    }

    /// Waits until no operation on it is under way.
    ///
    /// # Errors
    /// One is, after 30 s.
    pub fn operation_over(&self) -> Result<()> {
        wait_until_clear(|| Ok(self.record().exists().then(|| "the operation".to_owned())))
    }

    /// Kills its shim, once there is one; `false` if `over` reports first that there will be none.
    ///
    /// # Errors
    /// There is none within 30 s.
    pub fn kill_shim(&self, over: impl Fn() -> bool) -> Result<bool> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.stasis.shims_outside()?[..] {
                [shim] => return kill(shim, Signal::SIGKILL).map(|()| true).context("kill"),
                [] if over() => return Ok(false),
                // A process that `start` forks is not the shim before its exec.
                _ => {}
            }
            ensure!(Instant::now() < deadline, "no shim within 30 s");
            sleep(Duration::from_millis(1));
        }
    }

    /// Waits until no shim is left: a shim whose last task was deleted ends a moment later.
    ///
    /// # Errors
    /// One is, after 30 s.
    pub fn without_shim(&self) -> Result<()> {
        wait_until_clear(|| {
            let shims = self.stasis.shims_outside()?;
            Ok((!shims.is_empty()).then(|| format!("{shims:?}")))
        })
    }

    /// Waits until nothing is left of its task.
    ///
    /// # Errors
    /// Something is, after 30 s.
    pub fn nothing_left(&self, client: &Containerd) -> Result<()> {
        self.nothing_but_socket_left(client)?;
        self.stasis.nothing_left_of(&[self.id])
    }

    /// Waits likewise for a shim that may have been killed before containerd knew it: containerd
    /// does not run its `delete` then, so its socket stays, which hinders no other start.
    pub fn can_be_made_again(&self, client: &Containerd) -> Result<()> {
        self.nothing_but_socket_left(client)?;
        self.start(client, None)?;
        self.end(client)?;
        self.nothing_left(client)
    }

    /// Waits until nothing but its shim's socket is left of its task.
    ///
    /// # Errors
    /// Something else is left, after 30 s.
    pub fn nothing_but_socket_left(&self, client: &Containerd) -> Result<()> {
        wait_until_clear(|| {
            let mut left = self.stasis.left_of(&[self.id])?;
            left.extend(self.processes()?);
            if self.record().exists() {
                left.push(self.record().display().to_string());
            }
            let on_gpu = self.stasis.gpu_processes()?;
            if on_gpu > 0 {
                left.push(format!("{on_gpu} processes with the GPU"));
            }
            // containerd forgets a task after everything else.
            let state = client.state(self.id, INIT);
            if code(&state) != Code::NotFound {
                left.push(format!("{state:?}"));
            }
            Ok((!left.is_empty()).then(|| left.join(", ")))
        })
    }

    /// Lists processes in the host that work on a container, or in it.
    fn processes(&self) -> Result<Vec<String>> {
        let mut found = self.host_processes()?;
        // The name of "runc init" is "runc:[2:INIT]".
        let program = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
        found.retain(|(_, name)| PROGRAMS.contains(&program(name).as_str()));
        let lines = found
            .into_iter()
            .map(|(path, name)| format!("{} {name}", path.display()));
        Ok(lines.collect())
    }

    /// Lists all processes of the host, each with its name.
    fn host_processes(&self) -> Result<Vec<(PathBuf, String)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.stasis.path("/proc"))? {
            let path = entry?.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            found.push((path, name.trim().to_owned()));
        }
        Ok(found)
    }
}

/// Creates and starts a container's task.
pub fn start(client: &Containerd, id: &str, image: Option<&str>) -> Answer<()> {
    create(client, id, image)?;
    client.start(id, "").map(drop)
}

/// Creates a container's task; from a checkpoint, if one is given.
pub fn create(client: &Containerd, id: &str, image: Option<&str>) -> Answer<()> {
    let options = RuntimeOptions {
        criu_image_path: image.unwrap_or_default().to_owned(),
        ..RuntimeOptions::default()
    };
    client
        .create(id, &Streams::default(), Some(to_any(&options)?))
        .map(drop)
}

/// Checkpoints a container into a directory.
pub fn checkpoint(client: &Containerd, id: &str, image: &str, exit: bool) -> Answer<()> {
    let options = CheckpointOptions {
        exit,
        image_path: image.to_owned(),
        ..CheckpointOptions::default()
    };
    client.checkpoint(id, &options)
}

/// Returns the answer of a thread.
pub fn answered<T>(joined: std::thread::Result<T>) -> Result<T> {
    joined.map_err(|_| anyhow::anyhow!("a thread panicked"))
}
