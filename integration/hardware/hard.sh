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

ddp_off() { ddp off NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0; } # NCCL over host memory
ddp_on() { ddp on; } # NCCL over NVLink: what the ranks share is given up, and shared again
ddp_exchanged() { # the same, each rank on the other's GPU after each restore
    two_gpus DDP || return
    local uuids=($(smi --query-gpu=uuid --format=csv,noheader))
    settings $'[restore]\ngpu_map = { "'${uuids[0]}'" = "'${uuids[1]}'", "'${uuids[1]}'" = "'${uuids[0]}$'" }'
    ddp exchanged
    settings
}

train_ddp() { # NAME ENVIRONMENT...
    local name=$1
    shift
    extra=(--device /dev/nvidia1)
    new_pod
    torch_run ddp "$@" NCCL_CUMEM_HOST_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_SOCKET_IFNAME=lo USE_LIBUV=0 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2 -- \
        "cd /run/torch; for rank in 0 1; do RANK=\$rank $python ddp.py $name >>ddp-$name-\$rank-output.txt 2>&1 & done; wait"
    extra=()
    grow_shm ddp
    until_steps $name 30
    [ -s /run/torch/$name.txt ] || { say "DDP $name | does not train: $(tail -n 1 /run/torch/ddp-$name-1-output.txt)"; remove ddp; return 1; }
}

# The engine is killed at random moments of checkpoints, and a suspend is undone: the ranks train on.
ddp_killed() {
    two_gpus DDP && has_torch DDP || return
    local round start whole after pids steps fired=0 went_on=0 suspended=0
    RANDOM=${SEED:-1}
    train_ddp killed || return
    start=$(clock)
    ctr t checkpoint --image-path /images/killed ddp
    whole=$(milliseconds_since $start)
    for ((round = 1; fired < ${KILLS:-20} && round <= 60; round++)); do
        rm -rf /images/killed
        ctr t checkpoint --image-path /images/killed ddp >/dev/null 2>&1 &
        local operation=$!
        after=$((RANDOM * whole / 32768))
        sleep $(awk "BEGIN { print $after / 1000 }")
        pids=$(pids_named stasis-runtime)
        [ -n "$pids" ] && kill -9 $pids && fired=$((fired + 1))
        wait $operation
        steps=$(losses killed | wc -l)
        until_steps killed $((steps + 10))
        [ "$(losses killed | wc -l)" -ge $((steps + 10)) ] && went_on=$((went_on + 1)) || { echo "killed after $after ms: no steps" >>/out/ddp-killed.txt; tail -n 2 /var/log/stasis/operations.log >>/out/ddp-killed.txt; break; }
    done
    for round in 1 2 3; do
        cuda-checkpoint --toggle --container ddp --root /run/containerd/runc/default && cuda-checkpoint --toggle --container ddp --root /run/containerd/runc/default
        steps=$(losses killed | wc -l)
        until_steps killed $((steps + 10))
        [ "$(losses killed | wc -l)" -ge $((steps + 10)) ] && suspended=$((suspended + 1))
    done
    remove ddp
    say "DDP over NVLink, the engine killed at random moments of a checkpoint of $whole ms, seed ${SEED:-1} | $fired fired, the ranks trained on after $went_on checkpoints; suspended and taken up again $suspended of 3"
    train_ddp unbroken || return
    until_steps unbroken $(losses killed | wc -l)
    remove ddp
    say "the same | from those of a whole run differ $(differing <(losses killed) <(losses unbroken | head -n $(losses killed | wc -l))) of $(losses killed | wc -l) steps; left: $(left_of ddp)"
}

# Two ranks on two GPUs, five cycles of going on, killed and restored. Where steps were made twice, by the job that went on
# and by the restored one, they have to have the same loss.
ddp() { # NAME ENVIRONMENT...
    two_gpus DDP && has_torch DDP || return
    local cycle before killed first after name=$1
    train_ddp "$@" || return
    for ((cycle = 1; cycle <= ${CYCLES:-5}; cycle++)); do
        local start=$(clock)
        ctr c checkpoint --rw --image --task ddp ddp:$cycle || { say "DDP $name | checkpoint $cycle failed: $(tail -n 3 /out/log.txt | cut -c1-600)"; break; }
        local took=$(since $start)
        grep -h '"operation":"checkpoint"' /var/log/stasis/operations.log | tail -n 1 >>/out/operations.txt
        before=$(losses $name | tail -n 1)
        sleep 1
        remove ddp
        killed=$(losses $name | tail -n 1)
        new_pod
        start=$(clock)
        ctr c restore --rw --live ddp ddp:$cycle || { say "DDP $name | restore $cycle failed: $(tail -n 3 /out/log.txt | cut -c1-600)"; break; }
        local back=$(since $start) lines=$(losses $name | wc -l)
        sleep 2
        tail -n 1 /var/log/stasis/operations.log >>/out/operations.txt
        first=$(losses $name | tail -n +$((lines + 1)) | head -n 1)
        after=$(losses $name | tail -n 1)
        say "DDP of 2 ranks on 2 GPUs, $name, through $way, cycle $cycle (step loss) | checkpoint $took, before $before; killed at $killed; restore $back, goes on at ${first:-nothing}; 2 s later $after"
        ctr image rm ddp:$cycle >/dev/null
    done
    say "DDP $name | $(losses $name | sort -u | cut -d' ' -f1 | uniq -d | wc -l) steps with two losses, of $(losses $name | cut -d' ' -f1 | sort -u | wc -l), $(losses $name | sort | uniq -d | wc -l) of them made twice"
    cp /run/torch/$name.txt /run/torch/ddp-$name*.txt /out/
    remove ddp
}
