#!/bin/bash
# Builds CRIU for the package stasis-criu, from the upstream sources of Debian's source package: criu.sh ROOT OUT
#
# ROOT is the root file system of an old Debian (build.sh), so that the program runs with any newer glibc. libnet, whose
# name as a library differs between distributions, is linked into it. OUT gets the program, its version, its copyright,
# and the sources of both, which their licences ask for.
set -euo pipefail
root=$1 out=$2
mirror=${STASIS_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# sid's index is past its Valid-Until date when a mirror lags, and that of a closed suite for ever; signatures count.
patient=(-q -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3)

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# Downloads upstream sources of Debian's newest packages, with package lists of their own. Debian's patches stay out:
# none is of the programs, and a mirror may have newer ones than its index.
sources() {
    local lists=$root/criu/lists
    mkdir -p "$lists"/{lists/partial,cache/archives/partial}
    echo "deb-src [signed-by=$keyring] $mirror sid main" >"$lists/sources"
    local apt=(apt-get "${patient[@]}" -o Dir::Etc::SourceList="$lists/sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$lists/lists" -o Dir::Cache="$lists/cache" -o APT::Sandbox::User=root)
    "${apt[@]}" update
    (cd "$out/sources" && "${apt[@]}" source --tar-only --download-only "$@")
}

# Unpacks the sources of a package to build: unpacked PACKAGE
unpacked() {
    mkdir "$root/criu/$1"
    tar -xf "$out/sources/$1"_*.orig.tar.* --strip-components=1 -C "$root/criu/$1"
}

rm -rf "$out" "$root/criu"
mkdir -p "$out/sources" "$root/criu"
sources criu libnet
cp "$0" "$out/sources"
unpacked criu
unpacked libnet
inside apt-get "${patient[@]}" update
inside apt-get "${patient[@]}" -y install --no-install-recommends autoconf automake libtool make pkg-config python3 \
    protobuf-compiler protobuf-c-compiler libprotobuf-dev libprotobuf-c-dev libnl-3-dev libcap-dev uuid-dev
inside sh -ec 'cd /criu/libnet; autoreconf -i; ./configure -q --disable-shared --prefix=/criu/installed; make -s install'
inside env CPATH=/criu/installed/include LIBRARY_PATH=/criu/installed/lib make -s -C /criu/criu -j "$(nproc)" criu
install -D -m 755 --strip "$root/criu/criu/criu/criu" "$out/criu"

# What package and control name.
needed='linux-vdso|ld-linux|lib(c|dl|pthread|m|nl-3|protobuf-c|uuid)\.so'
if inside ldd /criu/criu/criu/criu | grep -v -E "$needed"; then
    echo "$out/criu needs a library that its packages do not ask for" >&2
    exit 1
fi
version=$(inside /criu/criu/criu/criu --version | sed -n 's/^Version: //p')
echo "$version" >"$out/version"
{
    echo "CRIU $version, as its authors have released it (https://criu.org), built by config/package/criu.sh of stasis."
    echo "libnet is linked into it. The sources of both are in stasis-criu-$version-sources.tar, beside this package where"
    echo "you have it from."
    for package in criu libnet; do
        printf '\n== %s\n\n' "$package"
        cat "$(find "$root/criu/$package" -maxdepth 2 \( -name COPYING -o -name LICENSE \) | head -n 1)"
    done
} >"$out/copyright"
