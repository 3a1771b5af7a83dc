//! Of which container something is.

use std::collections::BTreeSet;

use crate::cli::command_error::CommandError;
use crate::cli::locate::{LocateError, locate};

/// What is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// What is of any container, or of none that is known.
    Everybodys,
    /// What is of the container of this id.
    Of(String),
}

impl Whose {
    /// Of the container with this id, this name or this beginning of its id, among those that have
    /// left something.
    pub(super) fn of(name: &str, ids: &BTreeSet<&str>) -> Result<Self, CommandError> {
        if ids.contains(name) {
            return Ok(Self::Of(name.to_owned()));
        }
        // Of a container that runs its name is known.
        match locate(name, None) {
            Ok(found) => return Ok(Self::Of(found.container.id().to_owned())),
            Err(error @ LocateError::Ambiguous { .. }) => return Err(error.into()),
            Err(_) => {}
        }
        let begins: Vec<&str> = ids
            .iter()
            .copied()
            .filter(|id| id.starts_with(name))
            .collect();
        match begins.as_slice() {
            [] => Err(CommandError::NoImages(name.to_owned())),
            [id] => Ok(Self::Of((*id).to_owned())),
            several => Err(CommandError::ImagesOfSeveral {
                name: name.to_owned(),
                found: several.join(", "),
            }),
        }
    }

    pub(super) fn includes(&self, container: Option<&str>) -> bool {
        match self {
            Self::Everybodys => true,
            Self::Of(id) => container == Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_id_goes_before_what_begins_with_it() {
        let ids = BTreeSet::from(["gone-1", "gone-12", "other"]);
        let of = |name| Whose::of(name, &ids);
        assert_eq!(of("gone-1").unwrap(), Whose::Of("gone-1".into()));
        assert_eq!(of("oth").unwrap(), Whose::Of("other".into()));
        let several = of("gone").unwrap_err().to_string();
        assert!(several.contains("gone-1, gone-12"), "{several}");
        assert!(of("nobody-has-this").is_err());
    }

    #[test]
    fn what_is_of_nobody_known_is_of_no_container() {
        assert!(Whose::Everybodys.includes(None));
        let one = Whose::Of("gone-1".into());
        assert!(one.includes(Some("gone-1")));
        assert!(!one.includes(Some("gone-12")) && !one.includes(None));
    }
}
