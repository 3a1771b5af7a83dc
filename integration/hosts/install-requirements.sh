#!/bin/bash
# Installs what the integration tests need on a Debian 12 machine. Does nothing when all of it is there.
set -euo pipefail
missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need gcc gcc
# libFuzzer is compiled.
need g++ g++
need debootstrap debootstrap
need unshare util-linux
need nsenter util-linux
need ip iproute2
# A node is a machine of its own.
# Both at once: one of another point release is removed when the other is installed.
need qemu-system-x86_64 "qemu-system-x86 qemu-utils"
need qemu-img "qemu-system-x86 qemu-utils"
need mke2fs e2fsprogs
# The client of containerd that the tests use is generated when it is built.
need protoc protobuf-compiler
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
[ -e /bin/busybox ] || missing+=(busybox-static)
[ ${#missing[@]} -eq 0 ] && exit 0
read -ra missing <<<"${missing[*]}"
echo "installing ${missing[*]}"
apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}"
