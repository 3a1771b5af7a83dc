//! Who may call the operator's program.

use rustix::process::geteuid;

use super::CommandError;

/// Refuses whoever is not root: containers, what is recorded of operations, and images are root's,
/// and to others all of it would look as if it were not there.
///
/// # Errors
/// [`CommandError::NotRoot`].
pub fn refuse_others() -> Result<(), CommandError> {
    match geteuid().is_root() {
        true => Ok(()),
        false => Err(CommandError::NotRoot),
    }
}
