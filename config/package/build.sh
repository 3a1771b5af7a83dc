#!/bin/bash
# Makes the packages, in target/package: the programs are built against the glibc of Debian 11 (2.31), in a root file
# system of that release (STASIS_OLDEST names another suite), with this machine's Rust.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Mounts are of a namespace of our own, so that an interrupted build leaves none behind.
if [ -z "${STASIS_BUILD_NAMESPACE:-}" ]; then
    STASIS_BUILD_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
suite=${STASIS_OLDEST:-bullseye}
root=${STASIS_CACHE:-/var/cache/stasis}/package/$suite
mirror=${STASIS_MIRROR:-http://deb.debian.org/debian}
out=$PWD/target/package
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

if [ ! -e "$root/complete" ]; then
    echo "== Debian $suite, for its glibc"
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=gcc,libc6-dev "$suite" "$root" "$mirror"
    touch "$root/complete"
fi

echo "== the programs"
# The network is asked out here, where its certificates are.
cargo fetch --locked
cargo_home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$root"/{source,cargo,rust,target} target/package/programs
# A build script has rustc write beside the sources for a moment.
mount --bind . "$root/source"
mount --bind "$cargo_home" "$root/cargo"
mount --bind "$(rustc --print sysroot)" "$root/rust"
mount --bind target/package/programs "$root/mnt"
mount -t proc proc "$root/proc"
chroot "$root" env -i PATH=/rust/bin:/usr/bin:/bin HOME=/root CARGO_HOME=/cargo CARGO_TARGET_DIR=/target bash -ec '
    cd /source
    cargo build --offline --locked --release -p stasis -p stasis-runtime -p containerd-shim-stasis -p stasis-criu-plugin
    cd /target/release
    cp stasis stasis-runtime containerd-shim-stasis-v2 libstasis_memory.so /mnt'

echo "== CRIU, for machines without one of 4.0 or newer"
config/package/criu.sh "$root" target/package/criu

echo "== what they are made of"
cargo run --locked -q -p stasis-integration --features programs --bin sbom -- "$version" >target/package/programs/stasis.cdx.json

echo "== the packages"
config/package/assemble.sh "$version" target/package/programs "$out" target/package/criu
ls -l "$out"
