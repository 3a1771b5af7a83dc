//! Finds the owner of each import.

use std::collections::BTreeMap;

use stasis_injected_survey::{Answer, ITEMS, Item, VisitState, What};

use super::{GpuAddress, Members, Visited};
use crate::survey::{Asked, VisitError, Words, request};

/// How often a round is tried whose threads have gone: on a busy machine this process may not run
/// for so long that they wait no more, and have put all contents back.
const TRIES: usize = 3;
/// Number of own places tagged at once in each process, and of candidates read.
const AT_ONCE: usize = ITEMS / 2;

/// For each tag: the number of its process, and of the place there.
type Tags = BTreeMap<[u64; 2], (usize, usize)>;
/// For each process and each of its candidates, the place that it is.
type Identified = Vec<Vec<Option<(usize, usize)>>>;

/// Finds the own place (number of its process, and of the place there) that each candidate of each
/// process is. All own places are tagged, all candidates read, and all contents put back, in all
/// processes at the same time.
///
/// # Errors
/// [`VisitError`]: contents are as they were, unless it is [`VisitError::Tagged`].
pub fn identify(visited: &[(Visited<'_>, Members)]) -> Result<Identified, VisitError> {
    let all = || visited.iter().map(|(_, members)| members);
    let found = all().map(|members| vec![None; members.candidates.len()]);
    let mut found: Identified = found.collect();
    let own = all().map(|members| members.own.len()).max().unwrap_or(0);
    let candidates = found.iter().map(Vec::len).max().unwrap_or(0);
    for own in (0..own).step_by(AT_ONCE) {
        for candidates in (0..candidates).step_by(AT_ONCE) {
            tried(|| round(visited, Turn { own, candidates }, &mut found))?;
        }
    }
    Ok(found)
}

/// Tries a round again whose threads have gone.
fn tried(mut round: impl FnMut() -> Result<(), VisitError>) -> Result<(), VisitError> {
    for _ in 1..TRIES {
        match round() {
            Err(VisitError::Abandoned) => {}
            done => return done,
        }
    }
    round()
}

/// The first places of this round.
#[derive(Clone, Copy)]
struct Turn {
    own: usize,
    candidates: usize,
}

fn round(
    visited: &[(Visited<'_>, Members)],
    from: Turn,
    found: &mut Identified,
) -> Result<(), VisitError> {
    let mut tags = Tags::new();
    let mut asked = Vec::new();
    for (index, (one, members)) in visited.iter().enumerate() {
        let own = members.own.iter().enumerate().skip(from.own).take(AT_ONCE);
        let own = own.map(|(place, own)| tagged(&mut tags, (index, place), *own));
        let mut items: Vec<Item> = own.collect();
        let own = items.len();
        let candidates = members.candidates.iter().skip(from.candidates);
        items.extend(candidates.take(AT_ONCE).map(read));
        if !items.is_empty() {
            let request = request(one.record, What::Identify, &items);
            asked.push((index, own, Asked::new(one.process, one.record, &request)?));
        }
    }
    for (index, own, words) in together(asked)? {
        let values = Answer::read(&words);
        let values = values.values().skip(own);
        let places = found.iter_mut().skip(index).take(1).flatten();
        for (place, value) in places.skip(from.candidates).zip(values) {
            *place = tags.get(&value).copied().or(*place);
        }
    }
    Ok(())
}

/// Lets all threads tag before any reads, and all read before any puts contents back.
fn together<'p>(
    asked: Vec<(usize, usize, Asked<'p>)>,
) -> Result<Vec<(usize, usize, Words)>, VisitError> {
    for (turn, state) in [(1, VisitState::Holding), (2, VisitState::Read)] {
        for (_, _, one) in &asked {
            one.until(state)?;
        }
        for (_, _, one) in &asked {
            one.release_turn(turn)?;
        }
    }
    // Errors are returned only once all threads have put their contents back.
    let answers = asked.into_iter();
    let answers: Vec<_> = answers
        .map(|(index, own, one)| Ok((index, own, one.answer()?)))
        .collect();
    answers.into_iter().collect()
}

/// Makes the item of a place, with a tag that no other place has.
fn tagged(tags: &mut Tags, whose: (usize, usize), place: GpuAddress) -> Item {
    let tag = loop {
        let tag = [fastrand::u64(1..), fastrand::u64(1..)];
        if !tags.contains_key(&tag) {
            break tag;
        }
    };
    tags.insert(tag, whose);
    let [first, second] = tag;
    Item {
        address: place.address,
        bytes: 16,
        device: place.device,
        first,
        second,
        ..Item::default()
    }
}

fn read(place: &GpuAddress) -> Item {
    Item {
        address: place.address,
        device: place.device,
        ..Item::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries rounds with these results, and returns the result and the number of rounds.
    fn results(all: [Result<(), VisitError>; 4]) -> (Result<(), VisitError>, usize) {
        let mut left = all.into_iter();
        let result = tried(|| left.next().unwrap());
        (result, 4 - left.len())
    }

    #[test]
    fn a_round_is_tried_again_only_if_all_contents_were_put_back() {
        let gone = || Err(VisitError::Abandoned);
        let (done, rounds) = results([gone(), gone(), Ok(()), gone()]);
        assert!(done.is_ok() && rounds == 3);
        let (done, rounds) = results([gone(), gone(), gone(), Ok(())]);
        assert!(matches!(done, Err(VisitError::Abandoned)) && rounds == 3);
        let tagged = || Err(VisitError::Tagged { result: 1 });
        let (done, rounds) = results([tagged(), Ok(()), Ok(()), Ok(())]);
        assert!(matches!(done, Err(VisitError::Tagged { .. })) && rounds == 1);
    }
}
