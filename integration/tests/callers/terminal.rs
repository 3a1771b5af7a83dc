//! `stasis` at a terminal of its own.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use tempfile::NamedTempFile;

/// The terminal (of util-linux' `script`), and all its output.
pub(crate) struct Terminal {
    script: Child,
    shown: NamedTempFile,
}

impl Terminal {
    pub(crate) fn start(stasis: &StasisHost, columns: usize, arguments: &[&str]) -> Result<Self> {
        let shown = NamedTempFile::new()?;
        let there = format!("TERM=xterm exec {PROGRAM} {}", arguments.join(" "));
        let command = format!("stty rows 24 cols {columns}; {there}");
        let script = stasis
            .command("script")
            .args(["-qec", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(File::create(shown.path())?)
            .spawn()?;
        Ok(Self { script, shown })
    }

    pub(crate) fn text(&self) -> Result<String> {
        // A character may be half written.
        Ok(String::from_utf8_lossy(&fs::read(self.shown.path())?).into_owned())
    }

    pub(crate) fn until_shown(&self, text: &str) -> Result<()> {
        self.until_shown_times(1, text)
    }

    pub(crate) fn until_shown_times(&self, times: usize, text: &str) -> Result<()> {
        wait_until_clear(|| {
            let shown = self.text()?;
            let is_there = shown.matches(text).count() >= times;
            Ok((!is_there).then(|| format!("no {text:?} in {shown:?}")))
        })
    }

    pub(crate) fn press_ctrl_c(&mut self) -> Result<()> {
        let keys = self.script.stdin.as_mut().context("no keys")?;
        Ok(keys.write_all(b"\x03")?)
    }

    /// Waits for the program's end. Returns its exit code, and all its output.
    pub(crate) fn end(mut self) -> Result<(Option<i32>, String)> {
        // `script`'s standard input stays open: its end would end the terminal's input.
        let keys = self.script.stdin.take();
        let mut ended = None;
        let waited = wait_until_clear(|| {
            ended = self.script.try_wait()?;
            let goes_on = ended.is_none().then(|| self.text()).transpose()?;
            Ok(goes_on.map(|shown| format!("it goes on: {shown:?}")))
        });
        drop(keys);
        if waited.is_err() {
            // The terminal hangs up.
            self.script.kill()?;
            self.script.wait()?;
        }
        waited?;
        Ok((ended.and_then(|status| status.code()), self.text()?))
    }
}

/// Returns a line without its control sequences (ECMA-48: CSI).
pub(crate) fn visible(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        line + &part[end.map_or(0, |end| end + 1)..]
    })
}
