#!/bin/bash
# Makes the root file system of a test host: build.sh SUITE DIRECTORY PACKAGE...
#
# debootstrap makes the base only: its own resolver cannot follow sid's alternatives. apt, inside, installs the rest.
set -euo pipefail
suite=$1 root=$2
shift 2
mirror=${STASIS_MIRROR:-http://deb.debian.org/debian}

# Everything below is mounted in a namespace of our own, so that an interrupted build leaves no mount behind.
if [ -z "${STASIS_BUILD_NAMESPACE:-}" ]; then
    STASIS_BUILD_NAMESPACE=1 exec unshare --mount --propagation private \
        bash -c "$BASH_EXECUTION_STRING" build "$suite" "$root" "$@"
fi

debootstrap --variant=minbase "$suite" "$root" "$mirror"

# No daemon may start while its package is configured, and manuals are not needed.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cat >"$root/etc/dpkg/dpkg.cfg.d/stasis" <<'EOF'
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
EOF

mount -t proc proc "$root/proc"
inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
# sid's index is past its Valid-Until date when a mirror lags; its signature is still checked.
inside apt-get -q -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 update
inside apt-get -q -y -o Acquire::Retries=3 install --no-install-recommends "$@"

# CRIU 4.1 cannot dump internet sockets on newer kernels (seen on 6.18: they refuse SO_PASSCRED on them), so CRIU
# comes from sid for every suite; it pulls in nothing but its own libraries. The suite's own stays beside it.
if [ "$suite" != sid ]; then
    install -D "$root/usr/sbin/criu" "$root/opt/criu-$suite/criu"
    echo "deb $mirror sid main" >"$root/etc/apt/sources.list.d/sid.list"
    inside apt-get -q -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 update
    inside apt-get -q -y -o Acquire::Retries=3 install --no-install-recommends --target-release sid criu libcriu2
fi
inside apt-get -q clean
umount "$root/proc"

rm -rf "$root"/usr/sbin/policy-rc.d "$root"/var/lib/apt/lists/* "$root"/var/lib/{containerd,docker,containers} \
    "$root"/tmp/* "$root"/run/*
mkdir -p "$root"/var/lib/{containerd,docker,containers} "$root"/etc/stasis "$root"/usr/local/nvidia
