//! Memory is handed from its owners to importers, by descriptors.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use stasis_injection::imports::{Import, Visited, export};
use stasis_injection::survey::VisitError;

use super::{Share, Visit, at_the_same_time};
use crate::cuda::process_set::initial_state::ProcessId;

/// The visited processes.
pub(in crate::gpu_path) type Visits<'v> = BTreeMap<ProcessId, &'v Visit>;

/// What importers do with descriptors.
pub(in crate::gpu_path) type Receive =
    fn(&Visited<'_>, &[(Import, BorrowedFd<'_>)]) -> Result<(), VisitError>;

/// An importer and an owner.
pub(in crate::gpu_path) type Pair = (ProcessId, ProcessId);

/// The most descriptors of a pair that are open at a time. As many are rehearsed: a rank may have
/// just these left below its RLIMIT_NOFILE.
pub(in crate::gpu_path) const AT_ONCE: usize = 8;

/// Hands over the memory of all shares. Pairs that have no process in the same part work at the
/// same time: a process answers one request at a time.
pub(in crate::gpu_path) fn hand_over(
    visits: &Visits<'_>,
    shares: &[Share],
    receive: Receive,
) -> io::Result<()> {
    let pairs = by_pair(shares);
    let parts = pairs.iter().flat_map(|(pair, shares)| {
        let parts = shares.chunks(AT_ONCE);
        parts.map(|part| (*pair, part))
    });
    for round in rounds(parts) {
        // On a busy machine a thread may wait for us too long, and go. That can be tried again.
        let handed_over = || hand_over_at_once(visits, &round, receive);
        handed_over().or_else(|_| handed_over())?;
    }
    Ok(())
}

/// Sorts shares by their importers and owners.
pub(in crate::gpu_path) fn by_pair(shares: &[Share]) -> BTreeMap<Pair, Vec<Share>> {
    let mut pairs = BTreeMap::<_, Vec<_>>::new();
    for share in shares {
        let pair = (share.importer, share.owner);
        pairs.entry(pair).or_default().push(*share);
    }
    pairs
}

/// Splits work into rounds, in each of which a process is the importer at most once, and the owner
/// at most once.
fn rounds<T>(work: impl IntoIterator<Item = (Pair, T)>) -> Vec<Vec<(Pair, T)>> {
    let mut rounds = Vec::<Vec<(Pair, T)>>::new();
    for (pair, item) in work {
        match rounds.iter_mut().find(|round| has_room(round, pair)) {
            Some(round) => round.push((pair, item)),
            None => rounds.push(vec![(pair, item)]),
        }
    }
    rounds
}

fn has_room<T>(round: &[(Pair, T)], (importer, owner): Pair) -> bool {
    let mut pairs = round.iter().map(|(pair, _)| *pair);
    pairs.all(|pair| pair.0 != importer && pair.1 != owner)
}

/// All owners export before an importer receives: a process may be both.
fn hand_over_at_once(
    visits: &Visits<'_>,
    round: &[(Pair, &[Share])],
    receive: Receive,
) -> io::Result<()> {
    let files = at_the_same_time(round, |((_, owner), shares)| {
        let addresses: Vec<u64> = shares.iter().map(|share| share.owned_at.address).collect();
        export(&visited(visits, *owner)?, &addresses).map_err(io::Error::other)
    });
    let files: Vec<Vec<OwnedFd>> = files.into_iter().collect::<io::Result<_>>()?;
    let received: Vec<_> = round.iter().zip(&files).collect();
    let received = at_the_same_time(&received, |(((importer, _), shares), files)| {
        let imports = shares.iter().map(|share| share.import);
        let imports: Vec<(Import, BorrowedFd<'_>)> =
            imports.zip(files.iter().map(AsFd::as_fd)).collect();
        receive(&visited(visits, *importer)?, &imports).map_err(io::Error::other)
    });
    received.into_iter().collect()
}

fn visited<'v>(visits: &Visits<'v>, process: ProcessId) -> io::Result<Visited<'v>> {
    let visit = visits.get(&process).copied().map(Visit::visited);
    visit.ok_or_else(|| io::Error::other(format!("process {} was not asked", process.pid)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Pair, rounds};
    use crate::cuda::process_set::initial_state::ProcessId;

    #[test]
    fn no_process_has_two_requests_in_a_round() {
        let processes = (1..=8).map(|pid| ProcessId { pid, start_time: 1 });
        let processes: Vec<ProcessId> = processes.collect();
        let all: Vec<Pair> = processes
            .iter()
            .flat_map(|importer| processes.iter().map(move |owner| (*importer, *owner)))
            .filter(|(importer, owner)| importer != owner)
            .collect();
        // Each pair has more to hand over than it can at once.
        let work = all.iter().flat_map(|pair| [(*pair, 0), (*pair, 1)]);
        let rounds = rounds(work);
        for round in &rounds {
            let importers: BTreeSet<_> = round.iter().map(|((importer, _), _)| importer).collect();
            let owners: BTreeSet<_> = round.iter().map(|((_, owner), _)| owner).collect();
            assert_eq!([importers.len(), owners.len()], [round.len(); 2]);
        }
        let worked: BTreeSet<(Pair, u8)> = rounds.iter().flatten().copied().collect();
        assert_eq!(worked.len(), 2 * all.len());
        // One after the other it would take 112.
        assert!(rounds.len() <= 28, "{} rounds", rounds.len());
    }
}
