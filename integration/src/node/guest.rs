//! The agent of a node: the QEMU guest agent, and commands that it starts.
//!
//! The protocol: <https://www.qemu.org/docs/master/interop/qemu-ga-ref.html>.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// An emulated processor takes a minute or two to boot Debian, longer beside other tests.
const BOOT_DEADLINE: Duration = Duration::from_secs(600);
const COMMAND_DEADLINE: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(50);

/// A connection with the agent of a node.
#[derive(Debug)]
pub(super) struct Guest {
    agent: BufReader<UnixStream>,
}

/// The result of a command in a node.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i64>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Guest {
    /// Waits until the node has booted so far that its agent answers.
    pub(super) fn meet(socket: &Path) -> Result<Self> {
        let deadline = Instant::now() + BOOT_DEADLINE;
        let agent = loop {
            match UnixStream::connect(socket) {
                Ok(agent) => break agent,
                Err(error) => ensure!(Instant::now() < deadline, "QEMU does not answer: {error}"),
            }
            sleep(POLL);
        };
        agent.set_read_timeout(Some(BOOT_DEADLINE))?;
        let mut guest = Self {
            agent: BufReader::new(agent),
        };
        let answer = guest.call("guest-sync", &json!({ "id": 1 }));
        answer.context("the node has not booted")?;
        guest
            .agent
            .get_ref()
            .set_read_timeout(Some(COMMAND_DEADLINE))?;
        Ok(guest)
    }

    /// Runs a shell script as root and waits for its end.
    pub(super) fn run(&mut self, script: &str) -> Result<Output> {
        let deadline = Instant::now() + COMMAND_DEADLINE;
        let bash = json!({ "path": "/bin/bash", "arg": ["-c", script], "capture-output": true });
        let started = self.call("guest-exec", &bash)?;
        loop {
            let status = self.call("guest-exec-status", &json!({ "pid": started["pid"] }))?;
            if status["exited"] == true {
                return Ok(Output {
                    code: status["exitcode"].as_i64(),
                    stdout: text(&status["out-data"])?,
                    stderr: text(&status["err-data"])?,
                });
            }
            ensure!(
                Instant::now() < deadline,
                "{script}: runs for {COMMAND_DEADLINE:?}"
            );
            sleep(POLL);
        }
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": name, "arguments": arguments });
        writeln!(self.agent.get_mut(), "{request}")?;
        let mut line = String::new();
        self.agent
            .read_line(&mut line)
            .context("the agent of the node does not answer")?;
        let mut answer: Value = serde_json::from_str(&line)?;
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => bail!("{name}: {answer}"),
        }
    }
}

fn text(encoded: &Value) -> Result<String> {
    let bytes = BASE64_STANDARD.decode(encoded.as_str().unwrap_or_default())?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
