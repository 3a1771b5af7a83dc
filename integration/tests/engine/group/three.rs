//! Three containers: a counter on a GPU, memory of a GPU and of the host, and one without GPU
//! state.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};

/// The containers' ids, which are their tags for faults as well.
pub(super) const IDS: [&str; 3] = ["a", "b", "c"];
pub(super) const PORTS: [u16; 2] = [10400, 10401];
/// The script of the last container.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo $i >/count; sleep 0.02; done";

/// The containers, and how often each was asked.
pub(super) struct Three<'l> {
    pub(super) stasis: &'l StasisHost,
    low_level: &'l str,
    pub(super) bundles: [Bundle<'l>; 3],
    asked: u32,
    /// The last number that the last container was seen to reach.
    counted: u64,
    groups: u32,
}

impl<'l> Three<'l> {
    pub(super) fn run(stasis: &'l StasisHost, low_level: &'l str) -> Result<Self> {
        let port = |at: usize| PORTS[at].to_string();
        let bundles = [
            Bundle::make(stasis, IDS[0], &["/bin/counter", &port(0)])?,
            Bundle::make(stasis, IDS[1], &["/bin/memcheck", "16", &port(1)])?,
            Bundle::make(stasis, IDS[2], &["/bin/sh", "-c", COUNT])?,
        ];
        for bundle in &bundles {
            bundle.run()?;
        }
        let three = Self {
            stasis,
            low_level,
            bundles,
            asked: 0,
            counted: 0,
            groups: 0,
        };
        for port in PORTS {
            stasis.ask_until_up(port)?;
        }
        Ok(three)
    }

    /// Checks that the counter counts on from its last number, and that all memory is unchanged.
    pub(super) fn go_on(&mut self) -> Result<()> {
        self.asked += 1;
        for (at, port) in PORTS.into_iter().enumerate() {
            let answer = self.stasis.ask_until_up(port).context(IDS[at])?;
            let wanted = match at {
                0 => (101 + self.asked).to_string(),
                _ => format!("ok {}", self.asked),
            };
            ensure!(answer == wanted, "{}: {answer}, not {wanted}", IDS[at]);
        }
        let before = self.counted;
        wait_until_clear(|| {
            let now = self.count()?;
            ensure!(now == 0 || now >= before, "{now} after {before}");
            self.counted = now;
            Ok((now < before + 2).then(|| format!("{now}, as before")))
        })
    }

    /// Returns the last container's number; 0 while its file is being written.
    fn count(&self) -> Result<u64> {
        let file = format!("{}/rootfs/count", self.bundles[2].directory());
        let text = fs::read_to_string(self.stasis.path(file)).unwrap_or_default();
        Ok(text.trim().parse().unwrap_or_default())
    }

    /// Writes these settings.
    pub(super) fn set(&self, more: &str) -> Result<()> {
        self.stasis.set(self.low_level, more)
    }

    /// Returns a directory that no earlier group has used.
    pub(super) fn directory(&mut self) -> String {
        self.groups += 1;
        format!("/images/group-{}", self.groups)
    }

    /// Returns the command that checkpoints some containers together.
    pub(super) fn command(&self, ids: &[&str], into: &str, options: &[&str]) -> Command {
        let mut command = self.stasis.command(PROGRAM);
        command.args(["checkpoint", "--group", "--root", ROOT, "--into", into]);
        command.args(options).args(ids);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(super) fn begin(&self, into: &str, options: &[&str]) -> Result<Child> {
        Ok(self.command(&IDS, into, options).spawn()?)
    }

    /// Makes a checkpoint that succeeds. Returns its answer.
    pub(super) fn checkpoint(&self, into: &str, options: &[&str]) -> Result<Value> {
        let options = [options, &["--json"]].concat();
        let output = self.command(&IDS, into, &options).output()?;
        let answer = answer(&output)?;
        ensure!(output.status.success(), "{answer:#}");
        Ok(answer)
    }

    /// Makes a checkpoint that fails, with no image and nothing changed. Returns its answer.
    pub(super) fn fails(&self, into: &str, options: &[&str]) -> Result<Value> {
        let options = [options, &["--json"]].concat();
        let output = self.command(&IDS, into, &options).output()?;
        let answer = answer(&output)?;
        ensure!(output.status.code() == Some(1), "{answer:#}");
        ensure!(answer["complete"] == false, "{answer:#}");
        self.no_image(into)?;
        Ok(answer)
    }

    /// Checks that no image is in the directory.
    pub(super) fn no_image(&self, into: &str) -> Result<()> {
        let find = format!("[ ! -e {into} ] || find {into} -name group.json -o -name '*.img'");
        let found = self.stasis.run_for_text(&["bash", "-c", &find])?;
        ensure!(found.is_empty(), "{found}");
        Ok(())
    }

    /// Checks that all containers have ended, and restores them from their images.
    pub(super) fn restore(&self, into: &str) -> Result<()> {
        for bundle in &self.bundles {
            let status = bundle.status()?;
            ensure!(status.is_empty(), "{} is {status}", bundle.id);
            let mut restore = bundle.begin_restore_from(&format!("{into}/{}", bundle.id))?;
            let status = restore.wait()?;
            ensure!(status.success(), "{}: {:?}", bundle.id, bundle.message()?);
        }
        Ok(())
    }

    /// Returns the command that restores all containers together.
    pub(super) fn restore_command(&self, from: &str, options: &[&str]) -> Command {
        let mut command = self.stasis.command(PROGRAM);
        command.args(["restore", "--group", from, "--root", ROOT, "--json"]);
        for bundle in &self.bundles {
            command.arg(format!("--bundle={}={}", bundle.id, bundle.directory()));
        }
        command.args(options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Makes a restore that succeeds.
    pub(super) fn restore_together(&self, from: &str) -> Result<()> {
        let output = self.restore_command(from, &[]).output()?;
        let answer = answer(&output)?;
        ensure!(output.status.success(), "{answer:#}");
        ensure!(answer["result"] == "done" && answer["complete"] == true);
        Ok(())
    }

    /// Makes a restore that fails, leaves no container, and keeps the images. Returns its answer.
    pub(super) fn restore_fails(&self, from: &str) -> Result<Value> {
        let before = self.files(from)?;
        let output = self.restore_command(from, &[]).output()?;
        let answer = answer(&output)?;
        ensure!(output.status.code() == Some(1), "{answer:#}");
        ensure!(answer["complete"] == false, "{answer:#}");
        self.nothing_is_left()?;
        ensure!(self.files(from)? == before, "the images have changed");
        Ok(answer)
    }

    /// Checks that no container exists, and that nothing is recorded.
    pub(super) fn nothing_is_left(&self) -> Result<()> {
        self.stasis.nothing_to_put_right()?;
        for bundle in &self.bundles {
            let status = bundle.status()?;
            ensure!(status.is_empty(), "{} is {status}", bundle.id);
        }
        let of_them = "pgrep -af '^/bin/(counter|memcheck)|^/bin/sh -c i=0' || true";
        let left = self.stasis.run_for_text(&["bash", "-c", of_them])?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    }

    fn files(&self, directory: &str) -> Result<String> {
        let list = format!("cd {directory} && find . -type f -exec md5sum {{}} + | sort");
        self.stasis.run_for_text(&["bash", "-c", &list])
    }

    /// Kills processes of the host whose command lines match.
    pub(super) fn kill(&self, pattern: &str) -> Result<()> {
        self.signal("-KILL", pattern)
    }

    /// Sends them this signal.
    pub(super) fn signal(&self, signal: &str, pattern: &str) -> Result<()> {
        let signal = ["pkill", signal, "-f", pattern];
        self.stasis.run(&signal).map(drop)
    }

    pub(super) fn delete(&self) -> Result<()> {
        self.bundles.iter().try_for_each(Bundle::delete)
    }
}

/// Returns the answer of a command with `--json`.
pub(super) fn answer(output: &Output) -> Result<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}: {said}", String::from_utf8_lossy(&output.stdout)))
}

/// Returns the value of this name in a container's row.
pub(super) fn of<'a>(answer: &'a Value, id: &str, name: &str) -> &'a str {
    let rows = answer["containers"].as_array();
    let row = rows.and_then(|rows| rows.iter().find(|row| row["container"] == id));
    row.and_then(|row| row[name].as_str()).unwrap_or_default()
}
