#!/bin/bash
# The sections that run on the GPU machine. Each is a function that prints one line for the table, under a timeout.
export LC_ALL=C PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin CONTAINERD_SNAPSHOTTER=native HOME=/root
for applet in cat chmod cp cut date dirname df env find grep head kill ls mkdir mount mv rm sed sleep sort tail timeout tee tr umount wc awk md5sum ln ps free uname seq uniq mountpoint; do
    [ -e /usr/bin/$applet ] || /bin/busybox ln -s /bin/busybox /usr/bin/$applet
done
# CRIU's tar starts gzip through a shell.
[ -e /usr/bin/sh ] || ln -s bash /usr/bin/sh
exec 2>/out/log.txt
nvidia=/usr/local/nvidia
smi() { LD_LIBRARY_PATH=$nvidia/lib64 $nvidia/bin/nvidia-smi "$@"; }
say() { echo "$*" >>/out/table.txt; }
: >/etc/resolv.conf
echo '127.0.0.1 localhost' >/etc/hosts

mkdir -p /etc/stasis /run/containerd /images
settings() { # [TEXT]: where the driver is, and more
    printf '[driver]\nlibcuda = "%s/lib64/libcuda.so.1"\nnvml = "%s/lib64/libnvidia-ml.so.1"\n%s\n' $nvidia $nvidia "${1:-}" >/etc/stasis/stasis.toml
}
settings

ask() { # PORT: the answer of a workload, within 60 s
    timeout "${2:-60}" bash -c "exec 3<>/dev/udp/127.0.0.1/$1; echo x >&3; head -n 1 <&3"
}
until_up() { # PORT
    local answer try
    for try in {1..60}; do
        answer=$(ask "$1" 2) && [ -n "$answer" ] && { echo "$answer"; return; }
        sleep 0.3
    done
    echo "no answer"
}
# How containerd comes to stasis: its own shim runs our runtime, or (section "through_shim NAME ...") our shim serves.
through=(--runc-binary /usr/local/bin/stasis-runtime)
way=ctr
gpu_options=(--net-host
    --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm
    --mount "type=bind,src=$nvidia,dst=$nvidia,options=rbind:ro" --env LD_LIBRARY_PATH=$nvidia/lib64)
[ -e /sys/fs/cgroup/cgroup.controllers ] && grep -q cpu /sys/fs/cgroup/cgroup.controllers || gpu_options+=(--cpu-shares 0)
run() { # ID COMMAND...: a container with the GPU
    local id=$1
    shift
    ctr run -d "${through[@]}" "${gpu_options[@]}" "${extra[@]}" --env STASIS_TAG=$id localhost/stasis-test:latest "$id" "$@" </dev/null
}
remove() {
    ctr t kill -s KILL "$1"
    local try
    for try in {1..100}; do ctr t rm "$1" && break; sleep 0.1; done
    ctr c rm "$1"
}
forget() { # ID: the container and its checkpoint; another section may make one of the same name
    remove "$1"
    ctr image rm "$1:1" >/dev/null
}
on_gpu() { # how many processes NVML lists
    [ -x $nvidia/bin/nvidia-smi ] || { echo "?"; return; }
    smi --query-compute-apps=pid,used_memory --format=csv,noheader | wc -l
}
phases() { # the last operation, one line
    tail -n 1 /var/log/stasis/operations.log | sed 's/.*"operation":"\([a-z]*\)".*"phases":\[\(.*\)\]}/\1: \2/' |
        sed 's/{"name":"\([^"]*\)","seconds":\([0-9.]\{5\}\)[0-9]*/\1 \2 s/g; s/"bytes":[0-9]*,//g; s/,"gib_per_second":\([0-9.]\{4\}\)[0-9]*/ (\1 GiB\/s)/g; s/[}{"]//g; s/,/, /g'
}
clock() { echo $EPOCHREALTIME; }
since() { awk "BEGIN { printf \"%.2f s\", $(clock) - $1 }"; }

counter() {
    local first second third busy free start checkpoint restore
    run counter /bin/counter 10000
    first=$(until_up 10000)
    busy=$(on_gpu)
    start=$(clock)
    ctr c checkpoint --rw --image --task counter counter:1 || say "counter | checkpoint failed: $(tail -n 3 /out/log.txt)"
    checkpoint=$(since $start)
    second=$(ask 10000)
    phases >>/out/phases.txt
    remove counter
    free=$(on_gpu)
    start=$(clock)
    ctr c restore --rw --live counter counter:1
    restore=$(since $start)
    third=$(ask 10000)
    phases >>/out/phases.txt
    say "counter through $way | $first, leave-running checkpoint ($checkpoint), $second, killed, restored ($restore), $third; processes on the GPU: $busy, after the kill $free, restored $(on_gpu)"
    forget counter
}

exit_and_free() {
    local first between
    run exit /bin/counter 10008
    first=$(until_up 10008)
    ctr t checkpoint --exit --image-path /images/exit exit
    sleep 0.5
    between=$(on_gpu)
    phases >>/out/phases.txt
    say "ctr t checkpoint --exit | counter $first; processes on the GPU afterwards: $between; image $(du_mib /images/exit) MiB"
    remove exit
}
du_mib() { /bin/busybox du -sm "$1" | cut -f1; }

memory() { # MIB
    local start checkpoint restore first second third name=memory$1
    run $name /bin/memcheck $1 10001
    first=$(until_up 10001)
    start=$(clock)
    ctr c checkpoint --rw --image --task $name $name:1
    checkpoint=$(since $start)
    # The checkpoint itself, then the resume that ends it.
    tail -n 2 /var/log/stasis/operations.log >>/out/operations.txt
    second=$(ask 10001)
    remove $name
    start=$(clock)
    ctr c restore --rw --live $name $name:1
    restore=$(since $start)
    tail -n 1 /var/log/stasis/operations.log >>/out/operations.txt
    third=$(ask 10001)
    say "memcheck $1 MiB through $way | $first, checkpoint $checkpoint, $second, restore $restore, $third"
    forget $name
}

memory_direct() { # MIB: the runtime's own share, images on tmpfs, with exit
    local name=direct$1
    run $name /bin/memcheck $1 10007
    local first=$(until_up 10007)
    local start=$(clock)
    ctr t checkpoint --exit --image-path /images/$name $name
    local checkpoint=$(since $start)
    tail -n 1 /var/log/stasis/operations.log >>/out/operations.txt
    say "memcheck $1 MiB, ctr t checkpoint --exit --image-path | $first, $checkpoint; $(phases)"
    remove $name
    rm -rf /images/$name
}

tree() {
    run tree /bin/tree 10002
    local first=$(until_up 10002)
    ctr c checkpoint --rw --image --task tree tree:1
    local second=$(ask 10002)
    remove tree
    ctr c restore --rw --live tree tree:1
    say "tree (3 CUDA processes, 5 others) through $way | $first / $second / restored: $(ask 10002)"
    phases >>/out/phases.txt
    forget tree
}

managed() {
    run managed /bin/memcheck 64 10003 managed
    local first=$(until_up 10003) said
    said=$(ctr c checkpoint --rw --image --task managed managed:1 2>&1)
    say "managed memory | $first; checkpoint exit $?: $said; then $(ask 10003)"
    forget managed
}

through_shim() { # SECTION...
    through=(--runtime io.containerd.stasis.v2)
    way="the shim"
    "$@"
    local left try
    for try in {1..20}; do
        left=$(grep -l "^containerd-shim" /proc/[0-9]*/comm | wc -l)
        [ "$left" != 0 ] || break
        sleep 0.1
    done
    [ "$left" = 0 ] || say "through the shim: $1 | $left shims are left"
}

in_phase() { # NAME PHASE: waits until an operation on the container is at it
    local try
    for try in {1..500}; do
        grep -q "\"phase\":\"$2\"" /run/stasis/containers/*/$1/progress.json && return
        sleep 0.02
    done
}
left_of() { # NAME: what should not be there any more
    local left
    left=$(grep -lE '^(stasis-runtime|stasis-keeper|criu|runc|memcheck)$' /proc/[0-9]*/comm | wc -l)
    echo "$left processes, $(ls -d /run/stasis/containers/*/$1 | wc -l) records, $(grep -c $1/rootfs /proc/self/mountinfo) mounts, $(on_gpu) on the GPU"
}
until_ended() { # NAME
    local try
    for try in {1..300}; do
        grep -qs '^memcheck$' /proc/[0-9]*/comm || ctr t ls | grep -q "$1 .*RUNNING" || return
        sleep 0.1
    done
}

# The workload is in the middle of a driver call of minutes (here: seconds) when it is to end.
killed_in_gpu_checkpoint() {
    local start took name=killed-in-gpu-run
    run $name /bin/memcheck ${MIB:-8192} 10009
    until_up 10009 >/dev/null
    ctr t checkpoint $name >/run/said.txt 2>&1 &
    in_phase $name "gpu checkpoint"
    start=$(clock)
    ctr t kill -s KILL $name
    took=$(since $start)
    wait $!
    until_ended $name
    say "kill in the middle of the GPU checkpoint, through $way | answered in $took, over in $(since $start): $(tail -n 1 /run/said.txt | cut -c1-300)"
    remove $name
    say "the same | left: $(left_of $name)"
}

shim_killed_in_gpu_checkpoint() {
    local start shim name=shim-killed-in-gpu-run
    run $name /bin/memcheck ${MIB:-8192} 10009
    until_up 10009 >/dev/null
    # By its container's name, which no other run on this machine has.
    shim=$(grep -lz "^$name\$" /proc/[0-9]*/cmdline | while read -r file; do
        [ "$(cut -c1-15 "${file%cmdline}comm")" != containerd-shim ] || cut -d/ -f3 <<<"$file"
    done)
    [ -n "$shim" ] || { say "shim killed | its shim was not found"; return; }
    ctr t checkpoint $name >/run/said.txt 2>&1 &
    in_phase $name "gpu checkpoint"
    start=$(clock)
    kill -9 $shim
    wait $!
    until_ended $name
    say "shim killed in the middle of the GPU checkpoint | over in $(since $start), left: $(left_of $name)"
    ctr c rm $name
    run $name /bin/counter 10009
    say "the same | a container of the same name afterwards: $(until_up 10009)"
    remove $name
}

# The runtime is killed, and no other operation starts: its keeper brings the container back.
runtime_killed() {
    local name=runtime-killed phase file first
    run $name /bin/memcheck ${MIB:-8192} 10011
    first=$(until_up 10011)
    for phase in lock "gpu checkpoint" dump; do
        ctr t checkpoint --image-path /images/$name $name >/run/said.txt 2>&1 &
        in_phase $name "$phase"
        file=$(echo /run/stasis/containers/*/$name/progress.json)
        kill -9 "$(grep -o '"pid":[0-9]*' $file | cut -d: -f2)"
        local start=$(clock)
        wait $!
        say "runtime killed in phase $phase | $first, then $(ask 10011) after $(since $start); $(phases)"
        rm -rf /images/$name
    done
    remove $name
    say "the same | left: $(left_of $name)"
}

# A process is stopped while the driver moves its memory: the checkpoint is given up, and a guardian puts things right.
stopped_in_gpu_checkpoint() {
    local pid start first name=stopped-gpu-run
    run $name /bin/memcheck ${MIB:-8192} 10009
    first=$(until_up 10009)
    pid=$(ctr t ls | awk -v name=$name '$1 == name { print $2 }')
    [ -x $nvidia/bin/nvidia-smi ] || { mkdir -p /run/stasis-standin; echo "checkpoint $name slow:2000 1" >/run/stasis-standin/faults; }
    start=$(clock)
    ctr t checkpoint --image-path /images/$name $name >/run/said.txt 2>&1 &
    in_phase $name "gpu checkpoint"
    sleep 0.5
    kill -STOP $pid
    wait $!
    say "stopped in the middle of the GPU checkpoint | over in $(since $start): $(tail -n 1 /run/said.txt | cut -c1-900)"
    kill -CONT $pid
    start=$(clock)
    local try
    for try in {1..600}; do [ -e /run/stasis/containers/*/$name ] || break; sleep 0.1; done
    say "the same | continued: $first, $(ask 10009), guardian done in $(since $start), $(grep -ls '^stasis-keeper' /proc/[0-9]*/comm | wc -l) guardians left: $(tail -n 1 /var/log/stasis/operations.log)"
    ctr t checkpoint --image-path /images/$name $name >/run/said.txt 2>&1
    say "the same | checkpointed again: $? $(tail -n 1 /run/said.txt), $(ask 10009)"
    remove $name
    rm -rf /images/$name
}

# Version 2 of cgroups with a memory controller is on no machine that the tests run on.
out_of_memory() {
    local metrics
    grep -q memory /sys/fs/cgroup/cgroup.controllers || { say "a lack of memory | no memory controller here"; return; }
    ctr events >/run/events.txt &
    local events=$!
    ctr run -d "${through[@]}" --memory-limit $((64 << 20)) localhost/stasis-test:latest hog /bin/sh -c \
        'sleep 1; tail /dev/zero' </dev/null
    metrics=$(ctr t metrics hog | tr -s ' \n' ' ')
    local try
    for try in {1..100}; do ctr t ls | grep -q 'hog.*STOPPED' && break; sleep 0.1; done
    kill $events
    say "64 MiB for a program that wants more, through $way | events: $(grep -o '/tasks/[a-z]*' /run/events.txt | tr '\n' ' ')| metrics: $(grep -o 'memory.usage[a-z_]* [0-9]*\|memory.usage_limit [0-9]*\|pids.current [0-9]*' <<<"$metrics" | tr '\n' ' ')"
    cp /run/events.txt /out/
    remove hog
}

. /work/hard.sh
. /work/torch.sh
. /work/recipes.sh
. /work/bulk.sh
. /work/gpu-path.sh
. /work/many.sh
. /work/faults.sh
. /work/suspend.sh
. /work/commands.sh
. /work/travel.sh
. /work/quickstart.sh
. /work/group.sh
. /work/ranks.sh

containerd --root /var/lib/containerd --state /run/containerd >/out/containerd.txt 2>&1 </dev/null &
containerd=$!
for try in {1..100}; do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
ctr image import /images/test.tar >/dev/null
say "$(date -u +%FT%TZ), $(uname -r), $(containerd --version | cut -d' ' -f3), $(runc --version | head -n 1), $(criu --version | head -n 1)"
if [ -x $nvidia/bin/nvidia-smi ]; then
    say "$(smi --query-gpu=name,driver_version,memory.total,persistence_mode --format=csv,noheader)"
else
    say "stand-in driver"
fi
sections=(counter exit_and_free tree managed with_podman quickstart torch "memory ${MIB:-1024}" "memory ${MIB:-8192}" "memory_direct ${MIB:-8192}"
    "through_shim counter" "through_shim tree" "through_shim torch" "through_shim memory ${MIB:-8192}" "through_shim out_of_memory"
    "commands ${MIB:-8192}" "hooks ${MIB:-8192}" "through_shim at_create ${MIB:-8192}"
    "group_of_two ${MIB:-1024}"
    "through_shim killed_in_gpu_checkpoint" "through_shim shim_killed_in_gpu_checkpoint" runtime_killed
    forked dataloader exec_session "through_shim exec_session" earlier_image stopped_member sixteen limited_memory no_room operator stopped_in_gpu_checkpoint
    "preempted 20" generation "through_shim first_token" "through_shim first_answer" "through_shim travel ${MIB:-8192}" second_replica jax transformers random_kills two_that_do_not_fit filled_meanwhile other_gpu two_in_parallel "through_shim without_nvlink" "through_shim ranks ddp 2" "ranks fsdp 2" "ranks graph 2" "ranks symm 2" "data_parallel 2" "jax_ranks 2" "ranks_killed ddp 2"
    "ranks ddp 4" "ranks fsdp 4" "ranks graph 4" "ranks symm 4" "halves ddp 4")
[ -z "${PRESET:-}" ] || preset "$PRESET"
[ -z "${SECTIONS:-}" ] || IFS=, read -ra sections <<<"$SECTIONS"
for section in "${sections[@]}"; do
    start=$(clock)
    echo "=== $section" >&2
    ($section) &
    section_pid=$!
    # A section that hangs must not cost the others.
    for ((tenth = 0; tenth < ${SECTION_S:-120} * 10; tenth++)); do
        kill -0 $section_pid || break
        sleep 0.1
    done
    kill -9 $section_pid && say "$section | cut off after ${SECTION_S:-120} s"
    echo "=== $section: $(since $start)" >>/out/sections.txt
done
cp -r /var/log/stasis /out/stasis-logs
kill $containerd
wait $containerd
# Removes the remains of interrupted sections.
for cgroup in /sys/fs/cgroup/default/* /sys/fs/cgroup/default; do
    [ ! -d "$cgroup" ] || for pid in $(cat "$cgroup/cgroup.procs"); do kill -9 "$pid"; done
done
