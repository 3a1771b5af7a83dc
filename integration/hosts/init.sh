#!/bin/bash
# The first process of a test host: init.sh V2|HYBRID ROOT MOUNTPOINT NAME
#
# Builds the host's file system, enters it, says "ready NAME PID", and then adopts orphans until standard input
# closes. When it ends the kernel kills every process of the host and takes down its mounts and its network.
set -euo pipefail
kind=$1 root=$2 mountpoint=$3 name=$4

# /proc is still the machine's: this is the pid that the machine knows us by.
read -r pid _ </proc/self/stat

mount -t tmpfs tmpfs "$mountpoint"
mkdir "$mountpoint"/{upper,work,root}
mount -t overlay -o "lowerdir=$root,upperdir=$mountpoint/upper,workdir=$mountpoint/work" overlay "$mountpoint/root"
cd "$mountpoint/root"

make_devices() {
    mount -t tmpfs -o mode=755 tmpfs dev
    mknod -m 666 dev/null c 1 3
    mknod -m 666 dev/zero c 1 5
    mknod -m 666 dev/full c 1 7
    mknod -m 666 dev/random c 1 8
    mknod -m 666 dev/urandom c 1 9
    mknod -m 666 dev/tty c 5 0
    mkdir dev/{pts,shm,mqueue}
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    mount -t mqueue mqueue dev/mqueue
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    ln -s /proc/self/fd/0 dev/stdin
    ln -s /proc/self/fd/1 dev/stdout
    ln -s /proc/self/fd/2 dev/stderr
}

mount_cgroups() {
    if [ "$kind" = V2 ]; then
        mount -t cgroup2 cgroup2 sys/fs/cgroup
        # Version 2 hands controllers on only from a cgroup that holds no process.
        mkdir sys/fs/cgroup/init
        echo $$ >sys/fs/cgroup/init/cgroup.procs
        return
    fi
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    local controllers directory
    while IFS=: read -r _ controllers _; do
        directory=sys/fs/cgroup/${controllers#name=}
        if [ -z "$controllers" ]; then
            mkdir sys/fs/cgroup/unified
            mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
        elif [ "$controllers" = "${controllers#name=}" ]; then
            mkdir "$directory"
            mount -t cgroup -o "$controllers" cgroup "$directory"
        else
            mkdir "$directory"
            mount -t cgroup -o "none,$controllers" cgroup "$directory"
        fi
    done </proc/self/cgroup
}

# A machine with a GPU lends the host its nodes and its driver.
lend_gpu() {
    [ -e /dev/nvidiactl ] || return 0
    cp -a /dev/nvidia* dev/
    mount --rbind /usr/local/nvidia usr/local/nvidia
    mount -o remount,bind,ro usr/local/nvidia
}

mount -t proc proc proc
mount -t sysfs sysfs sys
mount_cgroups
make_devices
lend_gpu
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
# Containers live on a plain file system: CRIU cannot name the files of an overlay on an overlay.
for directory in var/lib/containerd var/lib/containers var/lib/docker; do
    mount -t tmpfs tmpfs "$directory"
done

# CRIU needs a mount at the root of its namespace, which chroot does not give.
pivot_root . .
umount -l .
cd /
ip link set lo up

echo "ready $name $pid"
while read -r _; do :; done

# A paused container of version 1 does not die, not even by SIGKILL, and would keep this host alive with it.
kill -KILL -1
shopt -s globstar nullglob
for state in /sys/fs/cgroup/freezer/**/freezer.state; do
    echo THAWED >"$state" || true
done 2>/dev/null
