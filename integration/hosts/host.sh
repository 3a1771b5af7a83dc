#!/bin/bash
# Runs one test host until standard input closes: host.sh V2|HYBRID ROOT MOUNTPOINT INIT_SCRIPT
#
# This process stays outside the host's namespaces. It lives on when the test that started it is killed, so that it
# can remove the host's cgroups, which belong to the whole machine, after the host's last process is gone.
set -euo pipefail
kind=$1 root=$2 mountpoint=$3 init=$4

# The cgroup directories of this process, one a line, as "controllers directory".
cgroups_of_self() {
    local controllers path
    while IFS=: read -r _ controllers path; do
        if [ -n "$controllers" ]; then
            echo "$controllers /sys/fs/cgroup/${controllers#name=}${path%/}"
        elif [ -d /sys/fs/cgroup/unified ]; then
            echo "v2 /sys/fs/cgroup/unified${path%/}"
        else
            echo "v2 /sys/fs/cgroup${path%/}"
        fi
    done </proc/self/cgroup
}

# Removes the cgroups below each directory given; the kernel takes a moment to release those of killed processes.
remove_cgroups() {
    local directory try
    for directory; do
        # Frozen processes cannot die.
        find "$directory" -name freezer.state -exec sh -c 'echo THAWED >"$1"' thaw {} \; 2>/dev/null || true
        for try in {1..50}; do
            [ -d "$directory" ] || break
            find "$directory" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
        done
    done
}

# Hosts whose supervisor was killed could not clean up after themselves.
for left in $(find /sys/fs/cgroup -type d -name 'stasis-host-*' -prune); do
    [ -d "/proc/${left##*-}" ] || remove_cgroups "$left"
done

name=stasis-host-$$
cgroups=()
while read -r controllers parent; do
    cgroup=$parent/$name
    # No engine can use a hierarchy that is not mounted where it is looked for, either.
    mkdir "$cgroup" 2>/dev/null || continue
    cgroups+=("$cgroup")
    if [ "$controllers" = v2 ]; then
        # Beside version 1 there is little to hand on, and crun refuses a hybrid host where version 2 has controllers:
        # those that containers have made the machine hand on are taken back, unless a cgroup uses them.
        if [ ${#cgroups[@]} -gt 1 ]; then
            [ "$kind" = V2 ] || for controller in $(<"$parent/cgroup.subtree_control"); do
                echo "-$controller" >"$parent/cgroup.subtree_control" || true
            done 2>/dev/null
            continue
        fi
        for controller in $(<"$parent/cgroup.controllers"); do
            echo "+$controller" >"$parent/cgroup.subtree_control" || true
        done 2>/dev/null
    elif [[ ",$controllers," = *,cpuset,* ]]; then
        # A cpuset takes no process before it has processors and memory nodes.
        cat "$parent/cpuset.cpus" >"$cgroup/cpuset.cpus"
        cat "$parent/cpuset.mems" >"$cgroup/cpuset.mems"
        # CRIU under crun makes cgroups here that it does not fill itself, also in a host that sees version 2 only.
        echo 1 >"$cgroup/cgroup.clone_children"
    fi
done < <(cgroups_of_self)
trap 'remove_cgroups "${cgroups[@]}"' EXIT

# The namespace's view of the cgroups starts at those that its first process is in.
(
    for cgroup in "${cgroups[@]}"; do
        echo $BASHPID >"$cgroup/cgroup.procs"
    done
    exec unshare --mount --pid --net --ipc --cgroup --propagation private --fork --kill-child \
        bash -c "$init" init "$kind" "$root" "$mountpoint" "$name"
)
