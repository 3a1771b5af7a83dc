//! Gives imports up.

use std::io;

use stasis_injected_survey::{Answer, Cursor, ITEMS, Item, What};

use super::{Import, Visited};
use crate::survey::{Asked, VisitError, request};

/// Gives the imports up, and adds how many references each had beside its mapping: 0 where none was
/// mapped any more. Their addresses stay reserved.
///
/// # Errors
/// [`VisitError`]: those were given up of which `references` has a number. The import that failed
/// is as it was, if a device's access to it cannot be restored.
pub fn drop_imports(
    visited: &Visited<'_>,
    imports: &[Import],
    references: &mut Vec<u64>,
) -> Result<(), VisitError> {
    let items: Vec<Item> = imports.iter().map(item).collect();
    for items in items.chunks(ITEMS) {
        let mut request = request(visited.record, What::Drop, items);
        while request.from.range < request.count {
            let asked = Asked::new(visited.process, visited.record, &request)?;
            let (words, done) = asked.answer_so_far()?;
            let answer = Answer::read(&words);
            let Cursor { range: next, .. } = answer.next;
            let next = match &done {
                Ok(()) => next,
                Err(VisitError::Call { item, .. } | VisitError::Other { item, .. }) => *item,
                Err(_) => request.from.range,
            };
            let new = (0..next.min(request.count)).zip(answer.values());
            let new = new.filter(|(index, _)| *index >= request.from.range);
            // One of the references was ours.
            references.extend(new.map(|(_, [released, _])| released.saturating_sub(1)));
            done?;
            // The process may have written the answer itself.
            if next <= request.from.range || next > request.count {
                return Err(VisitError::Io(io::ErrorKind::InvalidData.into()));
            }
            request.from.range = next;
        }
    }
    Ok(())
}

fn item(import: &Import) -> Item {
    Item {
        address: import.address,
        bytes: import.bytes,
        ..Item::default()
    }
}
