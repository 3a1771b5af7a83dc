//! Gives imports up.

use std::io;

use stasis_injected_survey::{Answer, Cursor, ITEMS, Item, What};

use super::{Import, Visited};
use crate::survey::{VisitError, one, request};

/// Gives the imports up, and returns how many references each had beside its mapping: 0 where none
/// was mapped any more. Their addresses stay reserved.
///
/// # Errors
/// [`VisitError`]: some were given up. The import that failed is as it was, if a device's access
/// to it cannot be restored.
pub fn drop_imports(visited: &Visited<'_>, imports: &[Import]) -> Result<Vec<u64>, VisitError> {
    let mut references = Vec::new();
    let items: Vec<Item> = imports.iter().map(item).collect();
    for items in items.chunks(ITEMS) {
        let mut request = request(visited.record, What::Drop, items);
        while request.from.range < request.count {
            let words = one(visited.process, visited.record, &request)?;
            let answer = Answer::read(&words);
            // The process may have written the answer itself.
            let Cursor { range: next, .. } = answer.next;
            if next <= request.from.range || next > request.count {
                return Err(VisitError::Io(io::ErrorKind::InvalidData.into()));
            }
            let new = (0..next).zip(answer.values());
            let new = new.filter(|(index, _)| *index >= request.from.range);
            // One of the references was ours.
            references.extend(new.map(|(_, [released, _])| released.saturating_sub(1)));
            request.from.range = next;
        }
    }
    Ok(references)
}

fn item(import: &Import) -> Item {
    Item {
        address: import.address,
        bytes: import.bytes,
        ..Item::default()
    }
}
