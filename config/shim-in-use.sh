#!/bin/sh
# Fails while a container needs the shim in this directory (/usr/bin), and says which: containerd
# forgets a container whose shim's program it does not find, and its processes run on
# (docs/containerd.md, "Going back").
set -eu

bin=$1
program=$(readlink -f "$bin/containerd-shim-stasis-v2" || true)
in_use=

# The kernel appends "(deleted)" to the path of a running program that a newer one has replaced.
is_ours() {
    [ -n "$program" ] || return
    found=$(readlink -f "$1" || true)
    [ "${found% (deleted)}" = "$program" ]
}

refuse() {
    echo "$1" >&2
    in_use=yes
}

# containerd, and Docker's own containerd, record the shim's program for each container.
for daemon in /run/containerd /run/docker/containerd/daemon; do
    for recorded in "$daemon"/io.containerd.runtime.v2.task/*/*/shim-binary-path; do
        [ -e "$recorded" ] || continue
        if is_ours "$(cat "$recorded")"; then
            refuse "needed by a container: ${recorded%/shim-binary-path}"
        fi
    done
done
# After an exchange of the shims containers still have the shim that they were started with.
for process in /proc/[0-9]*; do
    if is_ours "$process/exe"; then
        refuse "it runs: process ${process#/proc/}"
    fi
done
for directory in /usr/local/bin "$bin"; do
    link=$directory/containerd-shim-runc-v2
    if [ -L "$link" ] && is_ours "$link"; then
        refuse "a link leads to it: $link"
    fi
done
if [ -n "$in_use" ]; then
    echo "nothing was removed; docs/containerd.md, \"Going back\", says what to do" >&2
    exit 1
fi
