//! The reason of a crate above the engine: this one carries it in its errors, and knows its kind.

use std::error::Error;
use std::fmt::{self, Display, Formatter};

use crate::error::kind::Kind;

/// Why a crate above the engine lets an operation not begin, or not go on.
#[derive(Debug)]
pub struct Reason {
    kind: Kind,
    error: Box<dyn Error + Send + Sync>,
}

impl Reason {
    /// An error of this kind.
    pub fn new(kind: Kind, error: impl Error + Send + Sync + 'static) -> Self {
        let error = Box::new(error);
        Self { kind, error }
    }

    /// The error, if it is of this type.
    pub fn get<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Reason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
