#!/bin/bash
# Runs a command in a test host: enter.sh PID COMMAND...
set -euo pipefail
pid=$1
shift
# nsenter changes what a process sees, not the cgroups it is in.
while IFS=: read -r _ controllers path; do
    directory=/sys/fs/cgroup/${controllers#name=}
    [ -n "$controllers" ] || [ ! -d /sys/fs/cgroup/unified ] || directory=/sys/fs/cgroup/unified
    [ -d "$directory$path" ] || continue
    echo $$ >"$directory$path/cgroup.procs"
done <"/proc/$pid/cgroup"
# Tests in the background have a terminal's signals ignored, which all would inherit that they start.
exec nsenter --target "$pid" --mount --pid --net --ipc --cgroup /usr/bin/env --default-signal=HUP,INT,QUIT -i \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    CONTAINERD_SNAPSHOTTER=native PODMAN_IGNORE_CGROUPSV1_WARNING=1 "$@"
