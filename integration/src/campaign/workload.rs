//! The workloads, and the meaning of their answers.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

/// The program that a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Counts in GPU memory.
    Counter,
    /// Verifies and rewrites 8 MiB of GPU memory and 16 MiB of host memory.
    Memcheck,
    /// Three CUDA processes of eight.
    Tree,
    /// Two processes that wait for each other inside of CUDA calls.
    Ranks,
    /// CUDA, and children that inherited it.
    Forker,
    /// Two processes of which one reads the other's GPU memory.
    Sharing,
}

/// All that a workload has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading(Vec<u64>);

impl Workload {
    const ALL: [Self; 6] = [
        Self::Counter,
        Self::Memcheck,
        Self::Tree,
        Self::Ranks,
        Self::Forker,
        Self::Sharing,
    ];

    /// One of them.
    pub fn any(random: &mut Rng) -> Self {
        Self::ALL[random.usize(..Self::ALL.len())]
    }

    /// The one whose program has this name.
    pub fn named(program: &str) -> Result<Self> {
        let path = format!("/bin/{program}");
        let mut all = Self::ALL.into_iter();
        all.find(|workload| workload.command(0)[0] == path)
            .with_context(|| format!("WORKLOAD={program} is none"))
    }

    /// Its command; it answers at this port.
    #[must_use]
    pub fn command(self, port: u16) -> Vec<String> {
        let port = port.to_string();
        let words: &[&str] = match self {
            Self::Counter => &["/bin/counter", &port],
            Self::Memcheck => &["/bin/memcheck", "8", &port],
            Self::Tree => &["/bin/tree", &port],
            Self::Ranks => &["/bin/ranks", &port, "2"],
            Self::Forker => &["/bin/forker", &port],
            Self::Sharing => &["/bin/sharing", &port],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// The tags of its processes with CUDA in the container `id`.
    #[must_use]
    pub fn tags(self, id: &str) -> Vec<String> {
        let numbers = match self {
            Self::Counter | Self::Memcheck | Self::Forker => return vec![id.to_owned()],
            Self::Tree => 1..=3,
            Self::Ranks | Self::Sharing => 0..=1,
        };
        numbers.map(|number| format!("{id}-{number}")).collect()
    }

    /// How many numbers it answers with.
    fn numbers(self) -> usize {
        match self {
            Self::Counter | Self::Memcheck => 1,
            Self::Tree => 8,
            Self::Sharing => 2,
            Self::Ranks | Self::Forker => 3,
        }
    }

    /// Parses an answer to which every process of the workload contributes.
    pub fn read(self, answer: &str) -> Result<Reading> {
        let numbers = match self {
            Self::Ranks | Self::Memcheck => answer.strip_prefix("ok "),
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
    #[must_use]
    pub fn follows(self, after: &Reading, before: &Reading) -> bool {
        match self {
            // The ranks meet without being asked to.
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
