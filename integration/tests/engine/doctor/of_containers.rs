//! How a container is made one that has something of which people should know.

use super::cases::Case;

/// What is given to its process, below a root that is looked at. `P` is the process.
pub(super) const OF_CONTAINERS: [Case; 5] = [
    (
        "memlock",
        "warning",
        "sed 's/^VmLck:.*/VmLck: 256 kB/' /proc/$P/status >/root/status; \
         mount --bind /root/status /proc/$P/status; prlimit --pid $P --memlock=1048576",
        "umount /proc/$P/status",
    ),
    (
        "cuda-interposer",
        "warning",
        "cp /proc/$P/maps /root/maps; \
         echo '7fffffffe000-7ffffffff000 r-xp 0 00:00 1 /opt/libvgpu.so' >>/root/maps; \
         mount --bind /root/maps /proc/$P/maps",
        "umount /proc/$P/maps",
    ),
    (
        "apparmor",
        "warning",
        "echo 'docker-default (enforce)' >/root/profile; \
         mount --bind /root/profile /proc/$P/attr/current",
        "umount /proc/$P/attr/current",
    ),
    (
        "numa",
        "warning",
        "near; echo 1020-1023 >$N/cpulist",
        "umount /sys/bus /sys/devices/system",
    ),
    (
        "numa-memory",
        "warning",
        "near; echo 'Node 7 MemTotal: 4 kB' >$N/meminfo",
        "umount /sys/bus /sys/devices/system",
    ),
];
/// The stand-in's first GPU is near to a node of which nothing is known yet.
pub(super) const NEAR: &str = "near() { mount -t tmpfs none /sys/bus; \
                               mkdir -p /sys/bus/pci/devices/beef:01:00.0; \
                               echo 7 >/sys/bus/pci/devices/beef:01:00.0/numa_node; \
                               mount -t tmpfs none /sys/devices/system; mkdir -p $N; }";
