#!/bin/bash
# Puts what the installer calls into a directory, which becomes the root of its image: programs.sh DIRECTORY
set -euo pipefail
root=$1
# Debian's busybox-static, which `make requirements` installs. There is no library in the image.
if ldd /bin/busybox >/dev/null 2>&1; then
    echo "/bin/busybox is not linked statically: install busybox-static" >&2
    exit 1
fi
mkdir -p "$root"/{bin,etc,tmp,usr/bin}
install -m 755 /bin/busybox "$root/bin"
for name in $("$root/bin/busybox" --list); do
    [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"
done
ln -s /bin/env "$root/usr/bin/env"
