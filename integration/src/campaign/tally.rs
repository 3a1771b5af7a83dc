//! The outcomes of all faults, by operation, step and victim.

use std::collections::BTreeMap;
use std::fmt;

use crate::campaign::end::End;
use crate::campaign::judge::Outcome;
use crate::campaign::verb::Verb;

/// Counts of outcomes.
#[derive(Debug, Default)]
pub struct Tally {
    operations: u32,
    fired: u32,
    cells: BTreeMap<(String, Verb), BTreeMap<String, BTreeMap<End, u32>>>,
    ends: BTreeMap<End, u32>,
}

impl Tally {
    /// Counts one more.
    pub fn add(&mut self, outcome: &Outcome) {
        self.operations += 1;
        // A fault that fired twice is one of the first step.
        let Some(step) = outcome.fired.first() else {
            return;
        };
        self.fired += 1;
        let phase = step.split(": ").next().unwrap_or_default().to_owned();
        let row = (outcome.fault.victim(), outcome.verb);
        let steps = self.cells.entry(row).or_default();
        *steps
            .entry(phase)
            .or_default()
            .entry(outcome.end)
            .or_default() += 1;
        *self.ends.entry(outcome.end).or_default() += 1;
    }

    /// Adds the counts of another tally.
    pub fn join(&mut self, other: Self) {
        self.operations += other.operations;
        self.fired += other.fired;
        for (row, steps) in other.cells {
            let ours = self.cells.entry(row).or_default();
            for (step, ends) in steps {
                add_up(ours.entry(step).or_default(), ends);
            }
        }
        add_up(&mut self.ends, other.ends);
    }

    /// How many operations a fault has hit.
    pub fn fired(&self) -> u32 {
        self.fired
    }
}

fn add_up(ends: &mut BTreeMap<End, u32>, more: BTreeMap<End, u32>) {
    for (end, count) in more {
        *ends.entry(end).or_default() += count;
    }
}

/// Prints a table for `docs/internals/reliability.md`, and its sums.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| victim | operation | step (how often) | and then |")?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for ((victim, verb), steps) in &self.cells {
            let mut sum = BTreeMap::new();
            let mut words = Vec::new();
            for (step, ends) in steps {
                let count: u32 = ends.values().sum();
                words.push(format!("{step} ({count})"));
                add_up(&mut sum, ends.clone());
            }
            let (words, sum) = (words.join(", "), in_words(&sum));
            writeln!(f, "| {victim} | {verb} | {words} | {sum} |")?;
        }
        let (operations, fired) = (self.operations, self.fired);
        let ends = in_words(&self.ends);
        writeln!(
            f,
            "{operations} operations, in {fired} a fault fired: {ends}"
        )
    }
}

fn in_words(ends: &BTreeMap<End, u32>) -> String {
    let words = ends.iter().map(|(end, count)| format!("{end}: {count}"));
    words.collect::<Vec<_>>().join("; ")
}
