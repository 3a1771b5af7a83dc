#!/bin/bash
# Puts what the installer calls into a directory, which becomes the root of its image: programs.sh DIRECTORY
set -euo pipefail
root=$1
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
mkdir -p "$root"/{bin,etc,tmp,usr/bin}
# apt may leave that to a user of its own.
chmod 755 "$packages"
(cd "$packages" && apt-get -q download busybox-static kubernetes-client)
for package in "$packages"/*.deb; do
    dpkg-deb -x "$package" "$packages/unpacked"
done
programs=("$(find "$packages/unpacked" -path '*bin/busybox')" "$packages/unpacked/usr/bin/kubectl")
for program in "${programs[@]}"; do
    # There is no library in the image.
    if ldd "$program" >/dev/null 2>&1; then
        echo "$program is not linked statically: it would not run in the image" >&2
        exit 1
    fi
    install -m 755 "$program" "$root/bin"
done
for name in $("$root/bin/busybox" --list); do
    [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"
done
ln -s /bin/env "$root/usr/bin/env"
