#!/bin/sh
# Removes what `make install` has installed, but the settings and what stasis has stored. Refuses
# while a container needs the shim: containerd forgets a container whose shim's program it does not
# find, and its processes run on (docs/containerd.md, "Going back").
set -eu

bin=${DESTDIR:-}/usr/local/bin
lib=${DESTDIR:-}/usr/local/lib
program=$(readlink -f "$bin/containerd-shim-stasis-v2" || true)
in_use=

is_ours() {
    [ -n "$program" ] && [ "$(readlink -f "$1" || true)" = "$program" ]
}

refuse() {
    echo "$1" >&2
    in_use=yes
}

# What containerd, and Docker's own, have recorded of each container.
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
if is_ours "$bin/containerd-shim-runc-v2" && [ -L "$bin/containerd-shim-runc-v2" ]; then
    refuse "a link leads to it: $bin/containerd-shim-runc-v2"
fi
if [ -n "$in_use" ]; then
    echo "nothing was removed; docs/containerd.md, \"Going back\", says what to do" >&2
    exit 1
fi

if [ "$(readlink "$bin/cuda-checkpoint" || true)" = stasis ]; then
    rm "$bin/cuda-checkpoint"
fi
rm -f "$bin/stasis-runtime" "$bin/containerd-shim-stasis-v2" "$bin/stasis"
rm -f "$lib/stasis/libstasis_memory.so"
rm -f "$lib/systemd/system/stasis-recover.service"
rm -f "$lib/systemd/system/multi-user.target.wants/stasis-recover.service"
