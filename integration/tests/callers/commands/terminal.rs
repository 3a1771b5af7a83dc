//! The commands that go on until Ctrl-C, or have to be undone by it, at a terminal.

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::StasisHost;

use super::{counts_on, run};
use crate::terminal::{Terminal, visible};

/// The first line of a terminal (ECMA-48: CUP).
const HOME: &str = "\u{1b}[H";
const COLUMNS: usize = 40;
/// 128 + SIGINT, the exit code of every program that does not handle the signal.
const INTERRUPTED: i32 = 130;

pub(crate) fn a_watch_draws_again_until_ctrl_c(stasis: &StasisHost) -> Result<()> {
    let mut terminal = Terminal::start(stasis, COLUMNS, &["ps", "--watch", "1"])?;
    // The second screen is complete then.
    terminal.until_shown_times(3, HOME)?;
    terminal.press_ctrl_c()?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(INTERRUPTED), "{shown:?}");
    for screen in shown.split(HOME).skip(1).take(2) {
        let lines: Vec<String> = screen.lines().map(visible).collect();
        assert!(lines[0].starts_with("CONTAINER"), "{screen:?}");
        let mut others = lines.iter();
        let is_there = others.any(|line| line.starts_with("ctr-job") && line.contains("running"));
        assert!(is_there, "{screen:?}");
        let wide = lines
            .iter()
            .find(|line| line.trim_end().chars().count() > COLUMNS);
        assert_eq!(wide, None, "{screen:?}");
    }
    Ok(())
}

/// A script that prints the processes with a pending SIGINT, the second of the signals.
const PENDING: &str = "for pid in $(pgrep -x stasis); do \
    grep -lE '^(Sig|Shd)Pnd:.*[2367abef]$' /proc/$pid/status 2>/dev/null; done; :";

/// While the driver holds the GPU checkpoints of both.
pub(crate) fn ctrl_c_has_each_of_several_go_back(stasis: &StasisHost) -> Result<()> {
    stasis.hold_driver_for("checkpoint *", "gate", 2)?;
    let mut terminal = Terminal::start(stasis, 120, &["suspend", "podman-job", "ctr-job"])?;
    stasis.until_driver_is_called()?;
    terminal.press_ctrl_c()?;
    // The terminal shows the key once its processes have the signal pending.
    terminal.until_shown("^C")?;
    wait_until_clear(|| {
        let pending = stasis.run_for_text(&["bash", "-c", PENDING])?;
        Ok((!pending.is_empty()).then_some(pending))
    })?;
    stasis.let_driver_go("gate")?;
    let (code, shown) = terminal.end()?;
    assert_eq!(code, Some(1), "{shown:?}");
    assert_contains(&shown, &["podman-job: ", "ctr-job: "]);
    assert_eq!(shown.matches("[cancelled]").count(), 2, "{shown:?}");
    stasis.inject("")?;
    for port in [10001, 10000] {
        counts_on(stasis, port)?;
    }
    let (_, table, _) = run(stasis, &["ps"])?;
    ensure!(!table.contains("suspended"), "{table}");
    stasis.nothing_to_put_right()
}
