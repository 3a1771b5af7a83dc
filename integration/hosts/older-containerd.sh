#!/bin/bash
# Unpacks containerd 1.6, which Debian 12 has, into a directory: older-containerd.sh DIRECTORY
#
# Uses package lists of its own, so that it works on a machine of any release, and leaves the machine's alone.
set -euo pipefail
mirror=${STASIS_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

mkdir -p "$1/apt/lists/partial" "$1/apt/cache/archives/partial"
cd "$1"
echo "deb [signed-by=$keyring] $mirror bookworm main" >apt/sources
apt=(apt-get -q -o Dir::Etc::SourceList="$PWD/apt/sources" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache"
    -o APT::Sandbox::User=root -o Acquire::Retries=3)
"${apt[@]}" update
"${apt[@]}" download containerd
dpkg-deb -x containerd_1.6.*.deb .
rm -rf apt containerd_*.deb usr/share
