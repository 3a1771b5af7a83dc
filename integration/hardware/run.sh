#!/bin/bash
# The run on a GPU machine: run.sh DIRECTORY, with what pack.sh made there. Writes results to $OUT (default: ./gpu-results).
# PRESET names a list of sections (gpu-path.sh), SECTIONS="one,two 3,.." lists them, SECTION_S says how long each may take;
# WITHOUT_CONTRACT leaves the contract test out.
#
# Everything happens below one root file system, entered by pivot_root (CRIU cannot work under chroot), in the machine's
# own pid namespace: NVML names processes by the machine's pids. Without a GPU the stand-in is used, to try the script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packed=$(cd "$1" && pwd)
export OUT=${OUT:-$PWD/gpu-results}
mkdir -p "$OUT"
root=$(mktemp -d /tmp/stasis-gpu.XXXXXX)
mount -t tmpfs -o size=100G,mode=755 tmpfs "$root"
trap 'umount -l "$root" && rmdir "$root"' EXIT
tar -C "$root" -xJf "$packed/root.tar.xz"
cp "$here"/{inside,hard,torch,recipes,bulk,gpu-path,many,faults,suspend,commands,travel,quickstart,group,ranks}.sh "$here"/programs/*.py "$here"/../../docs/quickstart.md "$root/work/"

: >"$OUT/table.txt"
: >"$OUT/contract-left-out.txt"
if [ -e /dev/nvidiactl ] && [ -z "${WITHOUT_CONTRACT:-}" ]; then
    # The test makes namespaces of its own.
    # Cases that need ordered failures, or more GPUs than there are, leave themselves out: they have not passed.
    STASIS_LEFT_OUT=$OUT/contract-left-out.txt STASIS_NATIVE=$root/work/native \
        timeout 100 "$root/work/contract" --test-threads 4 >"$OUT/contract.txt" 2>&1 || true
    left_out=$(wc -l <"$OUT/contract-left-out.txt")
    count() { sed -n "s/^test result:.* \([0-9]*\) $1.*/\1/p" "$OUT/contract.txt"; }
    passed=$(count passed) failed=$(count failed)
    echo "contract test | $((${passed:-0} - left_out)) passed on the real driver, ${failed:-?} failed, $left_out left out" >>"$OUT/table.txt"
fi
# Beside version 1, containers make version 2 hand controllers on, which crun refuses to work with later.
unified=/sys/fs/cgroup/unified
give_controllers_back() {
    find $unified/default -depth -type d -exec rmdir {} + 2>/dev/null || true
    for controller in $(<$unified/cgroup.subtree_control); do echo "-$controller" >$unified/cgroup.subtree_control; done
}
unshare --mount --propagation private bash -euc '
    root=$1
    cd "$root"
    mount --rbind /proc proc
    mount --rbind /sys sys
    if [ -e sys/fs/cgroup/freezer ]; then mount -t cgroup2 cgroup2 sys/fs/cgroup; fi
    if [ -e /dev/nvidiactl ]; then
        mount --rbind /dev dev
        mount --rbind /usr/local/nvidia usr/local/nvidia
    else
        mount -t tmpfs tmpfs dev
        for node in null zero full random urandom tty; do cp -a /dev/$node dev/; done
        mkdir dev/pts dev/shm && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
        mknod dev/nvidia0 b 7 5 && mknod dev/nvidiactl b 7 6 && mknod dev/nvidia-uvm b 7 7
        for gpu in 1 2 3; do mknod dev/nvidia$gpu b 7 $((7 + gpu)); done
        mkdir -p usr/local/nvidia && cp -r work/native/lib64 usr/local/nvidia/lib64
    fi
    mount -t tmpfs -o mode=755 tmpfs run
    mkdir -p out && mount --bind "$OUT" out
    pivot_root . machine
    cd /
    exec /bin/bash /work/inside.sh
' enter "$root" || echo "inside.sh ended with $?"
[ ! -d $unified ] || give_controllers_back
cat "$OUT/table.txt"
