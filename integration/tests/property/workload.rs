//! The workloads, and what their answers say.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

/// What a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    Counter,
    Tree,
    Ranks,
    Forker,
}

/// All that a workload has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading(Vec<u64>);

impl Workload {
    pub(crate) fn any(random: &mut Rng) -> Self {
        let all = [Self::Counter, Self::Tree, Self::Ranks, Self::Forker];
        all[random.usize(..all.len())]
    }

    pub(crate) fn command(self) -> &'static [&'static str] {
        match self {
            Self::Counter => &["/bin/counter", "10000"],
            Self::Tree => &["/bin/tree", "10000"],
            Self::Ranks => &["/bin/ranks", "10000", "2"],
            Self::Forker => &["/bin/forker", "10000"],
        }
    }

    /// The tags of its processes with CUDA in the container `id`.
    pub(crate) fn tags(self, id: &str) -> Vec<String> {
        let numbers = match self {
            Self::Counter | Self::Forker => return vec![id.to_owned()],
            Self::Tree => 1..=3,
            Self::Ranks => 0..=1,
        };
        numbers.map(|number| format!("{id}-{number}")).collect()
    }

    /// How many numbers it answers with.
    fn numbers(self) -> usize {
        match self {
            Self::Counter => 1,
            Self::Tree => 8,
            Self::Ranks | Self::Forker => 3,
        }
    }

    /// An answer in which every process of the workload has its say.
    pub(crate) fn read(self, answer: &str) -> Result<Reading> {
        let numbers = match self {
            Self::Ranks => answer.strip_prefix("ok "),
            _ => Some(answer),
        };
        let numbers: Option<Vec<u64>> = numbers.and_then(|text| {
            text.split_whitespace()
                .map(|word| word.parse().ok())
                .collect()
        });
        let numbers = numbers.with_context(|| format!("the answer {answer:?}"))?;
        ensure!(numbers.len() == self.numbers(), "the answer {answer:?}");
        Ok(Reading(numbers))
    }

    /// Whether this is the first answer after that one: nothing was forgotten, and nothing was done
    /// twice.
    pub(crate) fn follows(self, after: &Reading, before: &Reading) -> bool {
        match self {
            // They meet without being asked to.
            Self::Ranks => {
                let (ranks, meetings, checksum) = (after.0[0], after.0[1], after.0[2]);
                let meetings_of_all = ranks * (meetings * (meetings + 1) / 2);
                let expected = 50 * ranks * (ranks + 1) * meetings + meetings_of_all;
                ranks == 2 && checksum == expected && meetings > before.0[1]
            }
            _ => after
                .0
                .iter()
                .zip(&before.0)
                .all(|(after, before)| *after == before + 1),
        }
    }
}
