//! Contents that are stored already.

use std::collections::HashMap;

use crate::{Checksum, Place};

/// The place of contents, by their checksum and length.
pub(crate) type ContentIndex = HashMap<(Checksum, usize), Place>;
