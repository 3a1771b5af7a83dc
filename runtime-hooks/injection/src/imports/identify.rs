//! Which memory of whose an import is.

use std::collections::BTreeMap;
use std::io;

use stasis_injected_survey::{Answer, ITEMS, Item, State, What};

use super::{Members, Place, Visited};
use crate::survey::{Asked, SurveyError, Words, request};

/// The most that a process may have of what may be others': half of what one request has, so that
/// there is room for its own.
pub const MOST_CANDIDATES: usize = ITEMS / 2;
/// How many own places are tagged at once in each process.
const OWN: usize = ITEMS - MOST_CANDIDATES;

/// By a tag: whose process it is, and which of its own places.
type Tags = BTreeMap<[u64; 2], (usize, usize)>;
/// For each process and each of its candidates, what it is.
type Found = Vec<Vec<Option<(usize, usize)>>>;

/// Which own place (of which process, and which of these) each candidate of each process is. All
/// own places are tagged, all candidates read, and all contents put back, of all processes at the
/// same time.
///
/// # Errors
/// [`SurveyError`]: contents are as they were, unless it is [`SurveyError::Tagged`]. More than
/// [`MOST_CANDIDATES`].
pub fn identify(visited: &[(Visited<'_>, Members)]) -> Result<Found, SurveyError> {
    if let Some((_, members)) = visited
        .iter()
        .find(|(_, members)| members.candidates.len() > MOST_CANDIDATES)
    {
        let count = members.candidates.len();
        let error = io::Error::other(format!("{count} allocations may be of other processes"));
        return Err(error.into());
    }
    let found = visited
        .iter()
        .map(|(_, members)| vec![None; members.candidates.len()]);
    let mut found: Found = found.collect();
    let most = visited.iter().map(|(_, members)| members.own.len()).max();
    for first in (0..most.unwrap_or(0)).step_by(OWN) {
        round(visited, first, &mut found)?;
    }
    Ok(found)
}

/// With the own places from the `first` one on.
fn round(
    visited: &[(Visited<'_>, Members)],
    first: usize,
    found: &mut Found,
) -> Result<(), SurveyError> {
    let mut tags = Tags::new();
    let mut asked = Vec::new();
    for (index, (one, members)) in visited.iter().enumerate() {
        let own = members.own.iter().enumerate().skip(first).take(OWN);
        let own = own.map(|(place, own)| tagged(&mut tags, (index, place), *own));
        let items: Vec<Item> = own.chain(members.candidates.iter().map(read)).collect();
        let own = items.len() - members.candidates.len();
        if !items.is_empty() {
            let request = request(one.record, What::Identify, &items);
            asked.push((index, own, Asked::new(one.process, one.record, &request)?));
        }
    }
    for (index, own, words) in together(asked)? {
        let values = Answer::read(&words);
        let values = values.values().skip(own);
        for (place, value) in found.iter_mut().skip(index).take(1).flatten().zip(values) {
            *place = tags.get(&value).copied().or(*place);
        }
    }
    Ok(())
}

/// Nobody reads before all have their tags, and nobody puts contents back before all have read.
fn together<'p>(
    asked: Vec<(usize, usize, Asked<'p>)>,
) -> Result<Vec<(usize, usize, Words)>, SurveyError> {
    for (turn, state) in [(1, State::Holding), (2, State::Read)] {
        for (_, _, one) in &asked {
            one.until(state)?;
        }
        for (_, _, one) in &asked {
            one.let_go_on(turn)?;
        }
    }
    // What one says is an error only once all have put back what is theirs.
    let answers = asked.into_iter();
    let answers: Vec<_> = answers
        .map(|(index, own, one)| Ok((index, own, one.answer()?)))
        .collect();
    answers.into_iter().collect()
}

/// A place that gets a tag which no other has.
fn tagged(tags: &mut Tags, whose: (usize, usize), place: Place) -> Item {
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
    }
}

fn read(place: &Place) -> Item {
    Item {
        address: place.address,
        device: place.device,
        ..Item::default()
    }
}
