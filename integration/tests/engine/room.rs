//! GPU memory is promised once: of two containers that do not both fit one comes back and the other
//! is refused, and a process whose room others have taken stays in host memory until there is room
//! again. A driver restore without room would lose the process.

mod going_back;
mod host_memory;
mod kept_off;
mod two_at_once;

use anyhow::{Result, ensure};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};

/// A container with 32 MiB takes 97, one with 16 takes 81.
const MEMORY: &str = "memory 120";
const PORTS: [u16; 2] = [10260, 10261];
/// The reservation of [`Other`].
const ENTRY: &str = "/run/stasis/ledger/other";

/// Checks that no reservation is left in the end.
fn nothing_is_reserved(stasis: &StasisHost) -> Result<()> {
    let script = "find /run/stasis/ledger -type f ! -name not-an-entry";
    let left = stasis.run_for_text(&["bash", "-c", script])?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

/// An entry that no process locks does not count, and a file that is no entry stops no operation.
fn rubbish_in_the_ledger(stasis: &StasisHost) -> Result<()> {
    let script = "mkdir -p /run/stasis/ledger/directory && cd /run/stasis/ledger && mkfifo fifo && \
         gpu=GPU-57415349-5300-4000-8000-000000000001 && \
         echo '{\"container\":\"dead\",\"pid\":1,\"amounts\":[[{\"gpu\":\"'$gpu'\"},99999999999]]}' >1.dead && \
         echo rubbish >not-an-entry && ln -s /dev/zero link && \
         { setsid flock not-an-entry sleep infinity >/dev/null 2>&1 & }";
    stasis.run(&["bash", "-c", script])?;
    Ok(())
}

/// An operation on another container, which has reserved more than any machine has, until it dies.
struct Other<'l> {
    stasis: &'l StasisHost,
    pid: String,
}

impl<'l> Other<'l> {
    fn reserves(stasis: &'l StasisHost, resource: &str) -> Result<Self> {
        // An operation that has just ended removes an empty ledger.
        let keep = "mkdir -p /run/stasis/ledger && touch /run/stasis/ledger/not-an-entry";
        stasis.run(&["bash", "-c", &format!("until {keep}; do :; done")])?;
        let text = format!(
            r#"{{"container":"other","pid":4711,"amounts":[["{resource}",{}]]}}"#,
            1_u64 << 60
        );
        stasis.write(ENTRY, &text)?;
        let script = format!(
            "setsid bash -c 'exec 9<{ENTRY}; flock 9; exec sleep infinity' >/dev/null 2>&1 & \
             for _ in {{1..600}}; do flock -n {ENTRY} true || exec echo $!; sleep 0.05; done; exit 1"
        );
        let pid = stasis.run_for_text(&["bash", "-c", &script])?;
        let pid = pid.trim().to_owned();
        Ok(Self { stasis, pid })
    }

    fn dies(self) -> Result<()> {
        self.stasis.run(&["kill", "-KILL", &self.pid])?;
        // The lock is held until the kernel has closed the process's files.
        wait_until_clear(|| {
            let mut free = self.stasis.host.command("flock");
            let free = free.args(["-n", ENTRY, "true"]).status()?;
            Ok((!free.success()).then(|| "it is still locked".to_owned()))
        })
    }
}

/// Suspends two containers, whose GPU contents are in host memory then; the GPU has room for one.
fn two_suspended(stasis: &StasisHost) -> Result<[Bundle<'_>; 2]> {
    stasis.inject(MEMORY)?;
    let [first, second] = ["first", "second"];
    let containers = [
        Bundle::make(stasis, first, &["/bin/memcheck", "32", "10260"])?,
        Bundle::make(stasis, second, &["/bin/memcheck", "32", "10261"])?,
    ];
    for (container, port) in containers.iter().zip(PORTS) {
        container.comes_up(port, "ok 0")?;
        suspend(stasis, container)?;
    }
    Ok(containers)
}

fn suspend(stasis: &StasisHost, container: &Bundle<'_>) -> Result<()> {
    let output = toggle(stasis, container).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn toggle(stasis: &StasisHost, container: &Bundle<'_>) -> std::process::Command {
    let mut command = stasis.command(CUDA_CHECKPOINT);
    command.args(["--toggle", "--container", &container.id, "--root", ROOT]);
    command.stderr(std::process::Stdio::piped());
    command
}

/// Returns the driver's state of the container's one process.
fn state(stasis: &StasisHost, container: &Bundle<'_>) -> Result<String> {
    let arguments = ["--get-state", "--container", &container.id, "--root", ROOT];
    let answer = stasis.run_for_text(&[&[CUDA_CHECKPOINT], &arguments[..]].concat())?;
    Ok(answer
        .split_whitespace()
        .last()
        .unwrap_or_default()
        .to_owned())
}
