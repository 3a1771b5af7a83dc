//! `stasis` at a terminal: its progress, and Ctrl-C.

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::installed::StasisHost;

use crate::commands::counts_on;
use crate::terminal::{Terminal, visible};

/// The checkpoint of a counter that goes on; `more` are arguments behind the name.
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
        let is_wide = |line: &&str| {
            line.contains("gpu checkpoint") && visible(line).chars().count() > columns
        };
        assert_eq!(lines.find(is_wide), None, "{shown:?}");
    }
    Ok(())
}

/// For a container that has ended, in the middle of its restore.
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
    terminal.until_shown("undoing")?;
    stasis.let_criu_go()?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(130), "{shown}");
    let told = format!("{name}: the restore was undone; nothing is left of it");
    assert_contains(&shown, &[&told, "[cancelled]"]);
    stasis.nothing_to_put_right()
}

/// Ctrl-C after the driver has been called for the last step, which is carried out.
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
    terminal.until_shown("undoing")?;
    stasis.let_driver_go("late")?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(0), "{shown}");
    let told = format!("{name}: restored in ");
    assert_contains(&shown, &[&told, "too late to undo it"]);
    stasis.inject("")
}

/// For a counter at a port, in the middle of its checkpoint.
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
    terminal.until_shown("undoing")?;
    stasis.let_driver_go("cancel")?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(130), "{shown}");
    let told = format!("{name}: the checkpoint was undone; it runs as before");
    assert_contains(&shown, &[&told, "[cancelled]"]);
    let logged = stasis.operation("checkpoint")?;
    ensure!(logged["kind"] == "cancelled" && logged["state"] == "unharmed");
    stasis.inject("")?;
    counts_on(stasis, port)?;
    stasis.nothing_to_put_right()
}
