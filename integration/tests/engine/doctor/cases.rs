//! The ways in which a host is broken, one after the other.

/// The id and the verdict of a finding, the script that breaks the host, and the one that mends it,
/// all but the settings.
pub(super) type Case = (&'static str, &'static str, &'static str, &'static str);

pub(super) const OF_THE_NODE: [Case; 14] = [
    ("settings", "fault", "echo nonsense >>$S", ""),
    (
        "low-level-runtime",
        "fault",
        "sed -i '/^runtime/d' $S; sed -i '1iruntime.path = \"nil\"' $S",
        "",
    ),
    (
        "criu-missing",
        "fault",
        "mv /usr/sbin/criu /root",
        "mv /root/criu /usr/sbin",
    ),
    (
        "criu-version",
        "fault",
        "mv /usr/sbin/criu /root; printf '#!/bin/sh\necho Version: 3.17.1\n' >/usr/sbin/criu; \
         chmod 755 /usr/sbin/criu",
        "mv /root/criu /usr/sbin",
    ),
    (
        "criu-check",
        "fault",
        "mv /usr/sbin/criu /root; printf '#!/bin/sh\n[ \"$1\" != check ] || exit 1\n\
         echo Version: 4.2.1\n' >/usr/sbin/criu; chmod 755 /usr/sbin/criu",
        "mv /root/criu /usr/sbin",
    ),
    (
        "criu-configuration",
        "warning",
        "mkdir -p /etc/criu; echo 'libdir /opt/plugins' >/etc/criu/default.conf",
        "rm /etc/criu/default.conf",
    ),
    (
        "criu-option",
        "fault",
        "mkdir -p /etc/criu; echo 'images-dir /srv' >/etc/criu/runc.conf",
        "rm /etc/criu/runc.conf",
    ),
    (
        "criu-log",
        "warning",
        "mkdir -p /etc/criu; echo 'log-file /var/log/criu.log' >/etc/criu/runc.conf",
        "rm /etc/criu/runc.conf",
    ),
    (
        "criu-plugin",
        "warning",
        "mv /usr/local/lib/stasis/libstasis_memory.so /root",
        "mv /root/libstasis_memory.so /usr/local/lib/stasis",
    ),
    (
        "two-installations",
        "warning",
        ": >/usr/bin/stasis-runtime; : >/usr/bin/stasis",
        "rm /usr/bin/stasis-runtime /usr/bin/stasis",
    ),
    (
        "own-programs",
        "fault",
        "mkdir /opt/alone; cp /usr/local/bin/stasis-runtime /opt/alone; \
         sed -i 's,/usr/local/bin/stasis-runtime,/opt/alone/stasis-runtime,' \
         /etc/docker/daemon.json",
        "rm -r /opt/alone",
    ),
    (
        "rootless",
        "warning",
        "useradd -m -u 1000 user; : >/etc/subuid; : >/etc/subgid; cd /home/user; \
         install -d -m 700 -o user -g user /run/user/1000; \
         as_user mkdir -p .config/containers; printf '[storage]\ndriver = \"vfs\"\n\
         [storage.options]\nignore_chown_errors = \"true\"\n' >.config/containers/storage.conf; \
         install -o user /images/test.tar .; as_user podman load -q -i test.tar; \
         as_user podman run -d --cgroups disabled --network none --name job \
         localhost/stasis-test:latest",
        "cd /home/user; as_user podman rm -f -t 0 job; pkill -u user; rm -r /run/user/1000",
    ),
    (
        "copying",
        "warning",
        "echo 'gpu_checkpoint.path = \"driver\"' >>$S",
        "",
    ),
    (
        "toolkit-mode",
        "warning",
        "mkdir /etc/nvidia-container-runtime; cd /etc/nvidia-container-runtime; \
         printf '[nvidia-container-runtime]\nmode = \"legacy\"\n' >config.toml",
        "rm -r /etc/nvidia-container-runtime",
    ),
];

pub(super) const OF_THE_GPUS: [Case; 7] = [
    (
        "driver",
        "fault",
        "sed -i 's,^driver.nvml.*,driver.nvml = \"/nil\",' $S",
        "",
    ),
    ("driver-version", "fault", "echo driver 565.57.01 >$O", ""),
    ("driver-maps", "warning", "echo driver 570.124.06 >$O", ""),
    ("driver-known", "warning", "echo driver 595.71.05 >$O", ""),
    ("lost-gpu", "fault", "printf 'gpus 2\nlost 1\n' >$O", ""),
    ("no-persistence", "fault", "echo persistence-off 0 >$O", ""),
    ("mig", "warning", "echo mig 0 >$O", ""),
];

/// While GPU memory is in use.
pub(super) const OF_ROOM: [Case; 2] = [
    (
        "host-memory",
        "warning",
        "echo 'MemAvailable: 1 kB' >/root/meminfo; \
         mount --bind /root/meminfo /proc/meminfo",
        "umount /proc/meminfo",
    ),
    (
        "no-space",
        "warning",
        "echo 'gpu_contents.directory = \"/var/lib/contents\"' >>$S; \
         mkdir -p /var/lib/contents; mount -t tmpfs -o size=4k none /var/lib/contents",
        "umount /var/lib/contents",
    ),
];

/// After an operation was killed with its keeper. The advised command mends it.
pub(super) const OF_OPERATIONS: Case = ("operations", "fault", "", "stasis recover >/dev/null");

/// While a container that was started with this libcuda runs, below a root that stasis searches.
pub(super) const OF_LIBCUDA: Case = (
    "container-libcuda",
    "warning",
    "ln -s /run/bundles /run/stasis-crio",
    "rm /run/stasis-crio; cd /usr/local/nvidia/lib64; mv libcuda.so.570.124.06 libcuda.so.1",
);
pub(super) const ANOTHER_LIBCUDA: &str = "cd /usr/local/nvidia/lib64; \
                                          mv libcuda.so.1 libcuda.so.570.124.06; \
                                          ln -s libcuda.so.570.124.06 libcuda.so.1";

pub(super) const OF_ENGINES: [Case; 15] = [
    (
        "docker-settings",
        "fault",
        "echo '{' >/etc/docker/daemon.json",
        "",
    ),
    (
        "docker-runtime",
        "fault",
        "sed -i 's,/usr/local/bin/stasis-runtime,/nil,' /etc/docker/daemon.json",
        "",
    ),
    (
        "docker-experimental",
        "warning",
        "sed -i '/experimental/d' /etc/docker/daemon.json",
        "",
    ),
    (
        "podman-settings",
        "fault",
        "echo '[[[' >>/etc/containers/containers.conf",
        "",
    ),
    (
        "podman-runtime",
        "fault",
        "sed -i 's,/usr/local/bin/stasis-runtime,/nil,' /etc/containers/containers.conf",
        "",
    ),
    (
        "containerd-settings",
        "fault",
        "echo '[[[' >>/etc/containerd/config.toml",
        "",
    ),
    (
        "containerd-runtime",
        "fault",
        "stasis setup containerd >/dev/null; mv /usr/local/bin/containerd-shim-stasis-v2 /root",
        "mv /root/containerd-shim-stasis-v2 /usr/local/bin",
    ),
    (
        "containerd-restores",
        "warning",
        "printf '[plugins.\"io.containerd.cri.v1.runtime\"]\n\
         enable_experimental_restore_via_create = true\n' >>/etc/containerd/config.toml",
        "",
    ),
    (
        "containerd-restores",
        "warning",
        "mkdir -p /etc/containerd/conf.d; printf '[plugins.\"io.containerd.cri.v1.runtime\"]\n\
         enable_experimental_restore_via_create = true\n' >/etc/containerd/conf.d/own.toml",
        "rm -r /etc/containerd/conf.d",
    ),
    (
        "containerd-checkpoints",
        "warning",
        "stasis setup containerd >/dev/null; printf '[plugins.\"io.containerd.cri.v1.runtime\"]\n\
         enable_criu = false\n' >>/etc/containerd/config.toml",
        "",
    ),
    (
        "crio-settings",
        "fault",
        "mkdir -p /etc/crio/crio.conf.d; echo '[[[' >/etc/crio/crio.conf.d/stasis.conf",
        "rm -r /etc/crio",
    ),
    (
        "crio-runtime",
        "fault",
        "stasis setup crio >/dev/null; \
         sed -i 's,/usr/local/bin/stasis-runtime,/nil,' /etc/crio/crio.conf.d/stasis.conf",
        "rm -r /etc/crio",
    ),
    (
        "crio-checkpoints",
        "warning",
        "stasis setup crio >/dev/null; printf '[crio.checkpoint_restore]\n\
         container_level_enabled = \"none\"\n' >/etc/crio/crio.conf",
        "rm -r /etc/crio",
    ),
    (
        "shim-link",
        "fault",
        "ln -s nil /usr/local/bin/containerd-shim-runc-v2",
        "rm /usr/local/bin/containerd-shim-runc-v2",
    ),
    (
        "shim-gone",
        "fault",
        "mkdir -p $B; printf /nil/containerd-shim-stasis-v2 >$B/shim-binary-path",
        "rm -r $B",
    ),
];
