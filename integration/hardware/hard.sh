# Sections with what real jobs look like: workers, several GPUs, other GPUs, no room. Sourced by inside.sh.

# Options of CRIU for training with process groups and worker processes: both ends of its TCP connections are its own.
mkdir -p /etc/criu
printf 'tcp-established\nnetwork-lock skip\nghost-limit 512M\n' >/etc/criu/runc.conf

# The stand-in's machine has two GPUs.
orders=/run/stasis-standin/faults
standin_orders() { [ -x $nvidia/bin/nvidia-smi ] || { mkdir -p ${orders%/*} && printf 'gpus 2\n'"$1" >$orders; }; }
standin_orders ''

extra=() # more options for `run`
network=(--net-host)

# A network namespace as a pod has it, made anew for each restore, as for a new pod: in the old one the ports of connections that were
# cut off stay taken for a minute (TIME_WAIT).
pod=/run/netns/pod
new_pod() {
    mkdir -p /run/netns
    umount $pod
    : >$pod
    /bin/busybox unshare -n /bin/bash -c "mount --bind /proc/self/ns/net $pod && ip link set lo up"
    network=(--with-ns network:$pod)
}
seconds_of() { # PHASE: of the last checkpoint, or of the resume that ended it
    tail -n 2 /var/log/stasis/operations.log | grep -o "\"name\":\"$1\",\"seconds\":[0-9.]*" | grep -o '[0-9.]*$' | tail -n 1
}
notes() { # OPERATION: of the last one of its kind
    grep -h "\"operation\":\"$1\"" /var/log/stasis/operations.log | tail -n 1 | grep -o '"notes":\[.*\],"phases"' | cut -c10-400
}
pids_of() { ctr t ps "$1" | tail -n +2 | cut -d' ' -f1; }
on_which() { # the GPUs, by index, that processes are on
    [ -x $nvidia/bin/nvidia-smi ] || { echo "?"; return; }
    local index
    for index in 0 1; do
        [ ! -e /dev/nvidia$index ] || [ -z "$(smi -i $index --query-compute-apps=pid --format=csv,noheader)" ] || echo -n "$index "
    done
}

no_room() {
    local free hog said exit name=noroom
    if [ -x $nvidia/bin/nvidia-smi ]; then
        free=$(smi -i 0 --query-gpu=memory.free --format=csv,noheader,nounits)
    else
        free=1000
        standin_orders "memory $free\n"
    fi
    run $name /bin/memcheck ${MIB:-8192} 10030
    local first=$(until_up 10030)
    ctr c checkpoint --rw --image --task $name $name:1
    remove $name
    # The hog's context takes some memory, too.
    hog=$((free - ${MIB:-8192} / 2 - 64))
    run hog /bin/memcheck $hog 10031
    local other=$(until_up 10031)
    said=$(ctr c restore --rw --live $name $name:1 2>&1)
    exit=$?
    ctr t rm $name
    ctr c rm $name
    remove hog
    ctr c restore --rw --live $name $name:1
    say "no room on the GPU | $first; hog of $hog MiB: $other; restore exit $exit: $(tail -n 1 <<<"$said" | cut -c1-400); then, with room: $(ask 10030)"
    forget $name
    standin_orders ''
}

exec_session() { # a CUDA process that came by exec goes on with its container, and does not keep its image from being restored
    local first second third
    run execd /bin/counter 10040
    first=$(until_up 10040)
    ctr t exec -d --exec-id guest execd /bin/counter 10041 </dev/null
    first+=" $(until_up 10041)"
    ctr c checkpoint --rw --image --task execd execd:1 || say "exec_session | checkpoint failed: $(tail -n 3 /out/log.txt)"
    second="$(ask 10040) $(ask 10041)"
    remove execd
    ctr c restore --rw --live execd execd:1
    third=$(ask 10040)
    phases >>/out/phases.txt
    say "a process by exec, through $way | init and guest $first; after the checkpoint $second; restored $third; processes on the GPU: $(on_gpu)"
    forget execd
}

earlier_image() { # a checkpoint that fails leaves the image in its directory as it was
    local first said exit third
    run again /bin/counter 10042
    first=$(until_up 10042)
    ctr t checkpoint --image-path /images/again again
    for pid in $(pids_of again); do ls -l /proc/$pid/fd | grep -q /dev/nvidia && kill -STOP $pid && victim=$pid; done
    said=$(ctr t checkpoint --image-path /images/again again 2>&1)
    exit=$?
    kill -CONT $victim
    say "a second checkpoint that fails, same directory | $first; exit $exit: $(tail -n 1 <<<"$said" | cut -c1-200); manifest kept: $([ -e /images/again/stasis.json ] && echo yes || echo no); the counter goes on: $(ask 10042)"
    remove again
}

stopped_member() {
    local pid victim said
    run stopped /bin/tree 10032
    local first=$(until_up 10032)
    for pid in $(pids_of stopped); do ls -l /proc/$pid/fd | grep -q /dev/nvidia && victim=$pid; done
    kill -STOP $victim
    said=$(ctr t checkpoint --image-path /images/stopped stopped 2>&1)
    local exit=$?
    kill -CONT $victim
    local second=$(ask 10032)
    ctr t checkpoint --image-path /images/stopped stopped
    say "a member stopped by SIGSTOP | $first; exit $exit: $(tail -n 1 <<<"$said" | cut -c1-300); continued: $second; checkpoint then: exit $?, $(ask 10032)"
    remove stopped
}

sixteen() {
    local port answers=()
    run sixteen /bin/sh -c "for port in \$(seq 11000 11015); do STASIS_TAG=p\$port /bin/memcheck $((${MIB:-8192} / 8)) \$port & done; wait"
    for port in {11000..11015}; do until_up $port >/dev/null; done
    local busy=$(on_gpu)
    ctr c checkpoint --rw --image --task sixteen sixteen:1
    grep -h '"operation":"checkpoint"' /var/log/stasis/operations.log | tail -n 1 >/run/line.txt
    cat /run/line.txt >>/out/operations.txt
    remove sixteen
    ctr c restore --rw --live sixteen sixteen:1
    for port in {11000..11015}; do answers+=("$(ask $port)"); done
    say "16 processes of $((${MIB:-8192} / 8)) MiB on one GPU through $way | on the GPU: $busy; $(phases); answers: $(printf '%s\n' "${answers[@]}" | sort | uniq -c | tr -s ' \n' ' ')"
    forget sixteen
}

limited_memory() {
    grep -q memory /sys/fs/cgroup/cgroup.controllers || { say "a memory limit | no memory controller here"; return; }
    local cgroup=/sys/fs/cgroup/default/limited limit=$((2 << 30)) first
    extra=(--memory-limit $limit)
    run limited /bin/memcheck ${MIB:-8192} 10033
    extra=()
    first=$(until_up 10033)
    ctr c checkpoint --rw --image --task limited limited:1
    local noted=$(notes checkpoint)
    local second=$(ask 10033) after=$(cat $cgroup/memory.max)
    remove limited
    ctr c restore --rw --live limited limited:1
    say "memory limit of 2 GiB, ${MIB:-8192} MiB on the GPU through $way | $first; $noted; then limit $after, $second; restored: limit $(cat $cgroup/memory.max), $(ask 10033), ooms: $(grep '^oom_kill ' $cgroup/memory.events)"
    forget limited
}

forked() {
    run forked /bin/forker 10034
    local first=$(until_up 10034)
    ctr c checkpoint --rw --image --task forked forked:1
    local second=$(ask 10034)
    remove forked
    ctr c restore --rw --live forked forked:1
    say "two forked children without exec through $way | $first, $second, restored: $(ask 10034)"
    forget forked
}

operator() {
    run operator /bin/memcheck ${MIB:-1024} 10035
    local first=$(until_up 10035) pid=$(pids_of operator | head -n 1) states=()
    say "stasis check | exit $(stasis check operator >/run/check.txt 2>&1; echo $?): $(tr '\n' ' ' </run/check.txt | cut -c1-300)"
    states+=("$(cuda-checkpoint --get-state --pid $pid)")
    cuda-checkpoint --toggle --pid $pid
    states+=("$(cuda-checkpoint --get-state --pid $pid)" "on the GPU: $(on_gpu)")
    cuda-checkpoint --toggle --pid $pid
    states+=("$(cuda-checkpoint --get-state --pid $pid)" "$(ask 10035)")
    cuda-checkpoint --action lock --timeout 1000 --pid $pid && cuda-checkpoint --action checkpoint --pid $pid
    states+=("$(cuda-checkpoint --get-state --pid $pid)")
    cuda-checkpoint --action restore --pid $pid && cuda-checkpoint --action unlock --pid $pid
    states+=("$(cuda-checkpoint --get-state --container operator)" "restore thread $(cuda-checkpoint --get-restore-tid --pid $pid)" "$(ask 10035)")
    say "cuda-checkpoint | $first; $(printf '%s; ' "${states[@]}")"
    remove operator
}

two_gpus() { [ -e /dev/nvidia1 ] || { say "$1 | one GPU here"; return 1; }; }

restore_moved() { # IMAGE
    # Our standard streams become the container's: pipes, since CRIU cannot dump a /dev/null of the host afterwards.
    stasis-runtime --log /run/moved.log restore --detach --image-path /images/$1 --work-path /run/moved/work --bundle /run/moved moved \
        <&"${COPROC[0]}" >&"${COPROC[1]}" 2>&1
}
other_gpu() {
    two_gpus "another GPU" || return
    local name=moving bundle=/run/moved number0 number1
    run $name /bin/memcheck ${MIB:-8192} 10036
    local first=$(until_up 10036) before=$(on_which)
    mkdir -p $bundle/rootfs
    cp /run/containerd/io.containerd.runtime.v2.task/default/$name/config.json $bundle/
    ctr t checkpoint --exit --image-path /images/$name $name
    phases >>/out/phases.txt
    remove $name
    number() { /bin/busybox stat -c '%t %T' $1 | while read -r major minor; do echo "\"major\":$((16#$major)),\"minor\":$((16#$minor))"; done; }
    number0=$(number /dev/nvidia0) number1=$(number /dev/nvidia1)
    sed -i "s|/dev/nvidia0|/dev/nvidia1|g; s|$number0\b|$number1|g" $bundle/config.json
    ctr image mount --rw localhost/stasis-test:latest $bundle/rootfs >/dev/null
    coproc sleep 1000
    local start=$(clock)
    restore_moved $name
    local exit=$? took=$(since $start)
    phases >>/out/phases.txt
    local pid=$(runc state moved | grep '"pid"' | grep -o '[0-9]*')
    say "a container of GPU 0 restored onto GPU 1 | $first on GPU $before; exit $exit in $took $(tail -n 1 /run/moved.log | cut -c1-400); $(ask 10036) on GPU $(on_which); nodes: $(ls /proc/$pid/root/dev | grep nvidia | tr '\n' ' '); notes: $(notes restore)"
    # And once more where it is now.
    stasis-runtime --log /run/moved.log checkpoint --image-path /images/$name-2 moved </dev/null
    exit=$?
    restore_moved $name-2
    say "the same, checkpointed (exit $exit) and restored (exit $?) again on GPU 1 | $(tail -n 1 /run/moved.log | cut -c1-400) $(ask 10036) on GPU $(on_which)"
    stasis-runtime delete --force moved
    kill $COPROC_PID
    umount $bundle/rootfs
    rm -rf $bundle /images/$name*
}

two_in_parallel() {
    two_gpus "two GPUs in parallel" || return
    local mib=${MIB:-8192} gpu round
    extra=(--device /dev/nvidia1)
    # Each alone, then both: three rounds, since the first touch of a machine's memory is slower.
    for round in 1 2 3; do
        local checkpoint=() restore=()
        for gpu in 0 1; do
            run single$gpu-$round /bin/sh -c "CUDA_VISIBLE_DEVICES=$gpu exec /bin/memcheck $mib 10037"
            until_up 10037 >/dev/null
            ctr t checkpoint --image-path /images/single single$gpu-$round
            checkpoint+=($(seconds_of "gpu checkpoint")) restore+=($(seconds_of "gpu restore"))
            ask 10037 >/dev/null
            remove single$gpu-$round
            rm -rf /images/single
        done
        run both$round /bin/sh -c "CUDA_VISIBLE_DEVICES=0 STASIS_TAG=a /bin/memcheck $mib 10037 & CUDA_VISIBLE_DEVICES=1 STASIS_TAG=b /bin/memcheck $mib 10038 & wait"
        until_up 10037 >/dev/null
        until_up 10038 >/dev/null
        ctr t checkpoint --image-path /images/both both$round
        local both_checkpoint=$(seconds_of "gpu checkpoint") both_restore=$(seconds_of "gpu restore")
        say "two processes of $mib MiB on two GPUs, round $round | one after the other: checkpoint $(ratio_of $both_checkpoint "${checkpoint[@]}"), restore $(ratio_of $both_restore "${restore[@]}"); $(ask 10037), $(ask 10038)"
        remove both$round
        rm -rf /images/both
    done
    extra=()
}
ratio_of() { # TOGETHER ONE OTHER
    awk "BEGIN { printf \"%.2f + %.2f s, together %.2f s: %.2f\", $2, $3, $1, $1 / ($2 + $3) }"
}
