#!/bin/bash
# Builds the installer's image with podman, from the tarball that `make package` has made: build.sh NAME
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
repository=$here/../../..
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$repository/Cargo.toml")
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp "$repository/target/package/stasis-$version-x86_64.tar.gz" "$here/installer.sh" "$context"
"$here/programs.sh" "$context/root"
podman build -t "$1" -f "$here/Containerfile" "$context"
