#!/bin/bash
# Random faults with the stand-in for the driver, on a machine with nothing but a kernel: [N=2000] [SEED=1] [JOBS=12]
# [MINUTES=8] campaign.sh DIRECTORY [COMMAND], with what pack-campaign.sh made there. COMMAND (/work/every-step.sh) is instead
# of them. Writes results to $OUT (default: ./campaign-results).
#
# Everything happens below one root file system, from which the hosts are made, too. The machine's GPUs are not in it.
set -euo pipefail
packed=$(cd "$1" && pwd)
export OUT=${OUT:-$PWD/campaign-results}
mkdir -p "$OUT"
root=$(mktemp -d /tmp/stasis-campaign.XXXXXX)
mount -t tmpfs -o size=100G,mode=755 tmpfs "$root"
trap 'umount -l "$root" && rmdir "$root"' EXIT
tar -C "$root" -xJf "$packed/root.tar.xz"
mkdir -p "$root"/{machine,work} "$root"/var/{log,cache} "$root/etc/stasis"
tar -C "$root/work" -xJf "$packed/work.tar.xz"
mv "$root"/work/{busybox,pivot_root} "$root/usr/bin/"

unshare --mount --propagation private bash -euc '
    root=$1
    cd "$root"
    mount --rbind /proc proc
    mount --rbind /sys sys
    if [ -e sys/fs/cgroup/freezer ]; then mount -t cgroup2 cgroup2 sys/fs/cgroup; fi
    mount -t tmpfs -o mode=755 tmpfs dev
    for node in null zero full random urandom tty; do cp -a /dev/$node dev/; done
    mkdir dev/pts dev/shm && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    # A loop device stands in for the devices of a GPU.
    mknod dev/loop5 b 7 5
    : <dev/loop5 || { echo "this machine has no loop devices: the stand-in cannot work"; exit 1; }
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    pivot_root . machine
    cd /
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
    export STASIS_HOST_SID=/ STASIS_NATIVE=/work/native HOSTS=${HOSTS:-sid_v2}
    export N=${N:-2000} SEED=${SEED:-1} JOBS=${JOBS:-12} MINUTES=${MINUTES:-8}
    export OUT=/work/results STASIS_HOST_TRIXIE=/
    mkdir "$OUT"
    exec "$2"
' enter "$root" "${2:-/work/campaign}" >"$OUT/table.txt" 2>"$OUT/operations.txt" || echo "it ended with $?"
cp -r "$root/work/results/." "$OUT/"
grep -A 30 "^FAILED" "$OUT/operations.txt" >>"$OUT/failures.txt" || true
cat "$OUT/table.txt"
tail -n 5 "$OUT/operations.txt"
