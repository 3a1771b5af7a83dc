//! Properties of a container that operators should know of.

use super::cases::Case;

/// A property of the container's process `P`, below a root that stasis searches.
pub(super) const OF_CONTAINERS: [Case; 1] = [(
    "apparmor",
    "warning",
    "echo 'docker-default (enforce)' >/root/profile; \
         mount --bind /root/profile /proc/$P/attr/current",
    "umount /proc/$P/attr/current",
)];
