//! Images that can be restored while they arrive: `stasis pull --background`, and what new
//! containers begin with.

pub(super) mod arrive;
pub(crate) mod background;
mod kept;
mod side_by_side;
