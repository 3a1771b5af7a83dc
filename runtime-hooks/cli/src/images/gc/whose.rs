//! The container that `--container` names.

use std::collections::BTreeSet;

use stasis_locate::{LocateError, locate};

use crate::command_error::CommandError;

/// Finds the container with this id, this name or this beginning of its id, among the containers
/// that have left something.
pub(super) fn container(name: &str, ids: &BTreeSet<&str>) -> Result<String, CommandError> {
    if ids.contains(name) {
        return Ok(name.to_owned());
    }
    // The name is known of a container that runs.
    match locate(name, None) {
        Ok(found) => return Ok(found.container.id().to_owned()),
        Err(error @ LocateError::Ambiguous { .. }) => return Err(error.into()),
        Err(_) => {}
    }
    let begins = ids.iter().copied().filter(|id| id.starts_with(name));
    match begins.collect::<Vec<_>>().as_slice() {
        [] => Err(CommandError::NoImages(name.to_owned())),
        [id] => Ok((*id).to_owned()),
        several => Err(CommandError::ImagesOfSeveral {
            name: name.to_owned(),
            found: several.join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_id_goes_before_what_begins_with_it() {
        let ids = BTreeSet::from(["gone-1", "gone-12", "other"]);
        let of = |name| container(name, &ids);
        assert_eq!(of("gone-1").unwrap(), "gone-1");
        assert_eq!(of("oth").unwrap(), "other");
        let several = of("gone").unwrap_err().to_string();
        assert!(several.contains("gone-1, gone-12"), "{several}");
        assert!(of("nobody-has-this").is_err());
    }
}
