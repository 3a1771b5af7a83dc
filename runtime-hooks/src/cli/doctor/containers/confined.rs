//! AppArmor, as SELinux: stasis was not tried with it, and CRIU gives a restored process the
//! profile that it had, which has to be loaded.

use super::Process;
use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;

pub(super) fn finding(name: &str, process: &Process) -> Option<Finding> {
    let profile = process.profile.as_ref()?;
    Some(warning(
        "apparmor",
        format!(
            "{name} is confined by AppArmor's profile {profile}, with which stasis was not tried"
        ),
        "try it first; the profile has to be loaded wherever the image is restored",
    ))
}
