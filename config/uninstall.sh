#!/bin/sh
# Removes what `make install` has installed, but the settings and what stasis has stored. Refuses
# while a container needs the shim.
set -eu

bin=${DESTDIR:-}/usr/local/bin
lib=${DESTDIR:-}/usr/local/lib
"$(dirname "$0")/shim-in-use.sh" "$bin"

if [ "$(readlink "$bin/cuda-checkpoint" || true)" = stasis ]; then
    rm "$bin/cuda-checkpoint"
fi
rm -f "$bin/stasis-runtime" "$bin/containerd-shim-stasis-v2" "$bin/stasis"
rm -f "$lib/stasis/libstasis_memory.so"
rm -f "$lib/systemd/system/stasis-recover.service"
rm -f "$lib/systemd/system/stasis-metrics.service" "$lib/systemd/system/stasis-metrics.timer"
rm -f "$lib/systemd/system/multi-user.target.wants/stasis-recover.service"
