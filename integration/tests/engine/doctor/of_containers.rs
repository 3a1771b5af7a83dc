//! How a container is made one that has something of which people should know.

use super::cases::Case;

/// What is given to its process, below a root that is looked at. `P` is the process.
pub(super) const OF_CONTAINERS: [Case; 1] = [(
    "apparmor",
    "warning",
    "echo 'docker-default (enforce)' >/root/profile; \
         mount --bind /root/profile /proc/$P/attr/current",
    "umount /proc/$P/attr/current",
)];
