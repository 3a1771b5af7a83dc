//! The phases of operations as bars.

use comfy_table::Table;
use stasis_engine::operation::timeline::Phase;

use super::line::Line;
use super::names::Named;
use super::table::outcome;
use crate::answer::amount::size;
use crate::answer::name;
use crate::answer::table::id;

/// The columns if there is no terminal.
const USUAL: u16 = 100;
/// The shortest bar, however narrow the terminal is.
const SHORTEST: usize = 10;
/// Columns in front of a bar: the phase's name and its seconds.
const BEFORE: usize = 36;
/// Columns behind a bar: bytes and rate.
const BEHIND: usize = 24;

/// A phase, and when it began, in seconds after the operation.
struct Placed<'p> {
    phase: &'p Phase,
    start: f64,
}

pub(super) fn of(lines: &[Named]) -> String {
    let columns = usize::from(Table::new().width().unwrap_or(USUAL));
    let length = columns.saturating_sub(BEFORE + BEHIND).max(SHORTEST);
    let drawn = |named: &Named| drawn(&named.line, &id(named.container()).content(), length);
    lines.iter().map(drawn).collect::<Vec<_>>().join("\n\n")
}

fn drawn(line: &Line, container: &str, length: usize) -> String {
    let (time, operation) = (name(&line.time), name(&line.operation));
    let seconds = line.seconds();
    let mut text = format!(
        "{time} {operation} of {container}: {seconds:.3} s, {}",
        name(&outcome(line))
    );
    for placed in placed(&line.phases) {
        let Phase {
            name: phase,
            seconds,
            ..
        } = placed.phase;
        let bar = bar(placed.start, *seconds, line.seconds(), length);
        let row = format!(
            "  {:<22} {seconds:>9.3} {bar}{}",
            name(phase),
            moved(placed.phase)
        );
        text += &format!("\n{}", row.trim_end());
    }
    text
}

fn moved(phase: &Phase) -> String {
    match (phase.bytes, phase.gib_per_second) {
        (Some(bytes), Some(rate)) => format!(" {}, {rate:.2} GiB/s", size(bytes)),
        _ => String::new(),
    }
}

/// Places phases one after the other, and the parts of a phase from its beginning.
fn placed(phases: &[Phase]) -> Vec<Placed<'_>> {
    let (mut next, mut next_part) = (0.0, 0.0);
    let place = |phase| {
        let after = if Phase::is_part(phase) {
            &mut next_part
        } else {
            next_part = next;
            &mut next
        };
        let start = *after;
        *after += phase.seconds;
        Placed { phase, start }
    };
    phases.iter().map(place).collect()
}

/// Draws a bar of one column at least, `length` columns for `whole` seconds.
fn bar(start: f64, seconds: f64, whole: f64, length: usize) -> String {
    let columns = |seconds: f64| {
        let whole = whole.max(f64::MIN_POSITIVE);
        let share = (seconds / whole).clamp(0.0, 1.0);
        // At most `length`.
        (0..length)
            .filter(|at| (*at as f64) < share * length as f64)
            .count()
    };
    let before = columns(start).min(length - 1);
    let filled = columns(seconds).clamp(1, length - before);
    let behind = length - before - filled;
    format!(
        "|{}{}{}|",
        " ".repeat(before),
        "#".repeat(filled),
        " ".repeat(behind)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, seconds: f64, bytes: Option<u64>) -> Phase {
        Phase {
            name: name.to_owned(),
            seconds,
            bytes,
            gib_per_second: bytes.map(|bytes| bytes as f64 / f64::from(1 << 30) / seconds),
        }
    }

    #[test]
    fn bars_follow_each_other_and_parts_begin_with_their_phase() {
        let line: Line = serde_json::from_value(serde_json::json!({
            "time": "2026-11-25T07:00:00Z",
            "operation": "checkpoint",
            "container": "job",
            "phases": [
                phase("gpu checkpoint", 2.0, Some(4 << 30)),
                phase("dump", 2.0, None),
                phase("dump: hook", 1.0, None),
                phase("unlock", 0.0, None),
            ],
        }))
        .unwrap();
        let expected = "2026-11-25T07:00:00Z checkpoint of job: 4.000 s, done
  gpu checkpoint             2.000 |#####     | 4.0 GiB, 2.00 GiB/s
  dump                       2.000 |     #####|
  dump: hook                 1.000 |     ###  |
  unlock                     0.000 |         #|";
        assert_eq!(drawn(&line, "job", 10), expected);
    }
}
