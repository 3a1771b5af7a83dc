//! `stasis` at a terminal: how far it is, and Ctrl-C.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use tempfile::NamedTempFile;

use crate::commands::counts_on;

/// `stasis` at a terminal of its own.
struct Terminal {
    script: Child,
    shown: NamedTempFile,
}

impl Terminal {
    fn start(stasis: &StasisHost, columns: usize, arguments: &[&str]) -> Result<Self> {
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

    fn text(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.shown.path())?)
    }

    fn until_shown(&self, text: &str) -> Result<()> {
        wait_until_clear(|| {
            let shown = self.text()?;
            Ok((!shown.contains(text)).then(|| format!("no {text:?} in {shown:?}")))
        })
    }

    fn press_ctrl_c(&mut self) -> Result<()> {
        let keys = self.script.stdin.as_mut().context("no keys")?;
        Ok(keys.write_all(b"\x03")?)
    }

    /// Its exit code, and all that was shown.
    fn end(mut self) -> Result<(Option<i32>, String)> {
        // What it reads from has to stay open: an end of that is an end of the terminal's input.
        let keys = self.script.stdin.take();
        let code = self.script.wait()?.code();
        drop(keys);
        Ok((code, self.text()?))
    }
}

/// The checkpoint of a counter that goes on, with arguments behind the name.
pub(super) fn progress_is_shown_also_in_a_narrow_window(
    stasis: &StasisHost,
    name: &str,
    more: &[&str],
) -> Result<()> {
    for columns in [120, 40] {
        stasis.hold_driver(&format!("checkpoint {name}"), "progress")?;
        let arguments = [&["checkpoint", name, "-R"], more].concat();
        let terminal = Terminal::start(stasis, columns, &arguments)?;
        terminal.until_shown(&format!("{name}: gpu checkpoint"))?;
        stasis.let_driver_go("progress")?;
        let (code, shown) = terminal.end()?;
        assert_eq!(code, Some(0), "{shown}");
        assert_contains(&shown, &[&format!("{name}: checkpointed in ")]);
        let mut lines = shown.split(['\r', '\n']);
        let is_wide = |line: &&str| line.contains("gpu checkpoint") && visible(line) > columns;
        assert_eq!(lines.find(is_wide), None, "{shown:?}");
    }
    Ok(())
}

/// The columns of a line without its control sequences (ECMA-48: CSI).
fn visible(line: &str) -> usize {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().chars().count();
    let rest = parts.map(|part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        part[end.map_or(0, |end| end + 1)..].chars().count()
    });
    first + rest.sum::<usize>()
}

/// Of a container that has ended, in the middle of its restore.
pub(super) fn ctrl_c_takes_a_restore_back(
    stasis: &StasisHost,
    name: &str,
    more: &[&str],
) -> Result<()> {
    stasis.hold_criu("post-restore")?;
    let arguments = [&["restore", name], more].concat();
    let mut terminal = Terminal::start(stasis, 120, &arguments)?;
    stasis.until_criu_is_held()?;
    terminal.until_shown(&format!("{name}: criu restore"))?;
    terminal.press_ctrl_c()?;
    terminal.until_shown("taking it back")?;
    stasis.let_criu_go()?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(130), "{shown}");
    let told = format!("{name}: the restore was taken back, and nothing is left of it");
    assert_contains(&shown, &[&told, "[cancelled]"]);
    stasis.nothing_to_put_right()
}

/// The same once the driver has been asked for the last step, which is carried out.
pub(super) fn ctrl_c_may_come_too_late(
    stasis: &StasisHost,
    name: &str,
    more: &[&str],
) -> Result<()> {
    stasis.hold_driver(&format!("restore {name}"), "late")?;
    let arguments = [&["restore", name], more].concat();
    let mut terminal = Terminal::start(stasis, 120, &arguments)?;
    terminal.until_shown(&format!("{name}: gpu restore"))?;
    terminal.press_ctrl_c()?;
    terminal.until_shown("taking it back")?;
    stasis.let_driver_go("late")?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(0), "{shown}");
    let told = format!("{name}: restored in ");
    assert_contains(&shown, &[&told, "too late to take it back"]);
    stasis.inject("")
}

/// Of a counter at a port, in the middle of its checkpoint.
pub(super) fn ctrl_c_takes_a_checkpoint_back(
    stasis: &StasisHost,
    (name, port): (&str, u16),
    more: &[&str],
) -> Result<()> {
    stasis.hold_driver(&format!("checkpoint {name}"), "cancel")?;
    let arguments = [&["checkpoint", name], more].concat();
    let mut terminal = Terminal::start(stasis, 120, &arguments)?;
    terminal.until_shown(&format!("{name}: gpu checkpoint"))?;
    terminal.press_ctrl_c()?;
    terminal.until_shown("taking it back")?;
    stasis.let_driver_go("cancel")?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(130), "{shown}");
    let told = format!("{name}: the checkpoint was taken back, and it is as it was");
    assert_contains(&shown, &[&told, "[cancelled]"]);
    let logged = stasis.operation("checkpoint")?;
    ensure!(logged["kind"] == "cancelled" && logged["state"] == "unharmed");
    stasis.inject("")?;
    counts_on(stasis, port)?;
    stasis.nothing_to_put_right()
}
