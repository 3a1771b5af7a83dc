# Jobs of several ranks, one a GPU, which share GPU memory over NVLink; sourced by inside.sh.

runc_root=/run/containerd/runc/default
has_gpus() { # COUNT
    [ -e /dev/nvidia$(($1 - 1)) ] || { say "$1 ranks | not as many GPUs here"; return 1; }
}
# What the annotations set is not set here. Multicast must stay off on these machines, whoever forgets it.
train() { # NAME MODE FIRST-GPU COUNT PAUSE ENVIRONMENT...
    local name=$1 mode=$2 gpus=$(seq $3 $(($3 + $4 - 1))) ranks=${RANKS:-$4} pause=$5 try
    local last=$((ranks - 1)) pod=/run/netns/$name program=ranks.py
    local extra=(--annotation io.stasis.nccl=checkpointable)
    [ $mode != dp ] || extra+=(--annotation io.stasis.peer-access=checkpointable)
    [ $mode != jax ] || { program=jax_ranks.py; extra+=(--mount type=bind,src=/machine/etc/alternatives,dst=/etc/alternatives,options=rbind:ro); }
    shift 5
    # A job of the same name before this one has left its losses, and the wish that it ends.
    rm -f /run/torch/$name.* /run/torch/$name-[0-9]-output.txt
    new_pod
    torch_run $name "$@" NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 NCCL_SOCKET_IFNAME=lo USE_LIBUV=0 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=$ranks -- \
        "cd /run/torch; for rank in \$(seq 0 $last); do RANK=\$rank $python $program $name $mode $pause >>$name-\$rank-output.txt 2>&1 & done; wait"
    grow_shm $name
    for try in 1 2; do until_steps $name 30; [ "$(losses $name | wc -l)" -lt 30 ] || return 0; ctr t ls | grep -q "^$name .*RUNNING" || break; done
    cp /run/torch/$name-*-output.txt /out/
    say "$name | does not train: $(tail -n 2 /run/torch/$name-$last-output.txt | tr '\n' ' ')"
    remove $name
    return 1
}
goes_on() { # NAME: whether ten more steps are made
    local steps=$(losses $1 | wc -l)
    until_steps $1 $((steps + 10))
    [ "$(losses $1 | wc -l)" -ge $((steps + 10)) ]
}
ask_ranks() { # NAME WHAT: waits until it is done
    local try
    : >/run/torch/$1.$2
    for try in {1..300}; do [ -e /run/torch/$1.$2 ] || return 0; sleep 0.1; done
}
bus() { # NAME: in GB/s, of all-reduces of 1 GiB
    [[ $1 != jax-* && $1 != *-of-* ]] || return
    ask_ranks $1 measure
    tail -n 1 /run/torch/$1.bus
}
middle_and_worst() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] ", worst " all[NR] }'; }
locks() { # NAME TIMES: milliseconds of whole commands, which start a process
    local time start
    # The first one on a machine tries the build of the driver, which takes 10 s.
    for ((time = 0; time <= $2; time++)); do
        start=$(clock)
        cuda-checkpoint --action lock --container $1 --root $runc_root || { echo failed; return; }
        [ $time = 0 ] || milliseconds_since $start
        cuda-checkpoint --action unlock --container $1 --root $runc_root || { echo failed; return; }
        sleep 0.0$((RANDOM % 9 + 1))
    done | middle_and_worst
}
rotated() { # COUNT: a map of each GPU to the next one
    local uuids=($(smi --query-gpu=uuid --format=csv,noheader)) gpu
    printf '[restore]\ngpu_map = { '
    for ((gpu = 0; gpu < $1; gpu++)); do
        printf '"%s" = "%s"%s' ${uuids[gpu]} ${uuids[(gpu + 1) % $1]} "$([ $((gpu + 1)) = $1 ] || echo ', ')"
    done
    echo ' }'
}
note_operations() { tail -n ${1:-1} /var/log/stasis/operations.log >>/out/operations.txt; }

# A checkpoint that goes on, a kill, a restore.
cycle() { # NAME IMAGE
    local name=$1 start took back steps pod=/run/netns/$1
    start=$(clock)
    ctr c checkpoint --rw --image --task $name $2 || { say "$2 | checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-900)"; return 1; }
    took=$(since $start)
    grep -h '"operation":"checkpoint"' /var/log/stasis/operations.log | tail -n 1 >>/out/operations.txt
    goes_on $name || { say "$2 | does not go on after the checkpoint"; return 1; }
    remove $name
    new_pod
    start=$(clock)
    ctr c restore --rw --live $name $2 || { say "$2 | restore failed: $(tail -n 3 /out/log.txt | cut -c1-900)"; return 1; }
    back=$(since $start)
    note_operations
    goes_on $name || { say "$2 | does not go on after the restore"; return 1; }
    say "$2 | checkpoint $took, killed, restored in $back, goes on at $(losses $name | tail -n 1)"
    ctr image rm $2 >/dev/null
}
suspended() { # NAME: and resumed, by the engine
    stasis suspend --root $runc_root $1 >&2 && stasis resume --root $runc_root $1 >&2 && goes_on $1 && echo yes || echo no
}
# All steps against those of a run that nobody has touched.
compared() { # NAME MODE FIRST-GPU COUNT ENVIRONMENT...
    local name=$1 steps
    steps=$(losses $name | cut -d' ' -f1 | sort -u | wc -l)
    train $name-whole $2 $3 $4 0 "${@:5}" || return
    until_steps $name-whole $steps
    until_steps $name-whole $steps
    remove $name-whole
    say "$name | $steps steps, $(losses $name | sort | uniq -d | wc -l) of them made twice; differ from an untouched run of $(losses $name-whole | wc -l): $(differing <(losses $name | sort -u) <(losses $name-whole | head -n $steps))"
    cp /run/torch/$name*.txt /out/
}
ended() { # NAME COUNT: the job ends as it does without us
    ask_ranks $1 finish &
    local try
    for try in {1..200}; do ctr t ls | grep -q "^$1 .*STOPPED" && break; sleep 0.1; done
    kill $!
    say "$1 | ranks that ended well: $(grep -l '^ended$' /run/torch/$1-[0-9]-output.txt | wc -l) of $2 $(grep -hi 'error\|abort' /run/torch/$1-[0-9]-output.txt | sort | uniq -c | head -n 2 | cut -c1-300)"
    remove $1
}

ranks() { # MODE COUNT ENVIRONMENT...
    local mode=$1 count=$2 name=$1-$2${RANKS:+-of-$RANKS} before
    has_gpus $count && has_torch "$mode" || return
    train $name $mode 0 $count 0.02 "${@:3}" || return
    before=$(bus $name)
    say "$name through $way | locked in (ms): $(locks $name ${LOCKS:-50})"
    if cycle $name $name:1; then
        settings "$(rotated $count)"
        cycle $name $name:2
        settings
        say "$name | suspended and resumed, goes on: $(suspended $name); all-reduce of 1 GiB, GB/s, before and after: $before, $(bus $name)"
    fi
    ended $name ${RANKS:-$count}
    compared $name $mode 0 $count "${@:3}"
}
jax_ranks() { ranks jax $1 JAX_PLATFORMS=cuda XLA_PYTHON_CLIENT_PREALLOCATE=false PATH=/usr/local/cuda/bin:/usr/bin:/bin; } # a process a GPU
# All on one GPU, whose kernels wait for each other's in turns: the memory shared is as on several GPUs, the link is not.
on_one_gpu() { RANKS=$1 ranks symm 1 BACKEND=gloo TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES=1 GLOO_SOCKET_IFNAME=lo; } # RANKS
data_parallel() { RANKS=1 ranks dp $1; } # one process on all GPUs
without_nvlink() { ranks ddp ${1:-2} NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0 "${@:2}"; } # NCCL over host memory

# PyTorch gives a collective 10 minutes, and its watchdog 8: here 15 s, and longer pauses.
pauses() { # SECONDS COUNT TIMES
    local time
    has_gpus $2 && has_torch pauses || return
    for ((time = 1; time <= ${3:-1}; time++)); do paused $1 $2 pause$time; done
    say "$(/bin/busybox dmesg | grep -i xid | tail -n 2 | tr '\n' ' ')"
}
paused() { # SECONDS COUNT NAME
    local seconds=$1 name=$3 pod=/run/netns/$3
    train $name ddp 0 $2 0.02 TIMEOUT=15 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=15 || return
    stasis suspend --root $runc_root $name >&2
    sleep $seconds
    stasis resume --root $runc_root $name >&2
    say "$name | suspended for $seconds s, with a timeout of 15: goes on: $(goes_on $name && echo yes || echo "no: $(grep -h 'rror\|imed out' /run/torch/$name-?-output.txt | tail -n 2 | cut -c1-300 | tr '\n' ' ')")"
    ctr t ls | grep -q "^$name .*RUNNING" || { remove $name; train $name ddp 0 $2 0.02 TIMEOUT=15 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=15 || return; }
    ctr c checkpoint --rw --image --task $name $name:1 || { say "$name | checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"; return; }
    remove $name
    sleep $seconds
    new_pod
    ctr c restore --rw --live $name $name:1
    say "$name | saved, restored after $seconds s: goes on: $(goes_on $name && echo yes || echo "no: $(grep -h 'rror\|imed out' /run/torch/$name-?-output.txt | tail -n 2 | cut -c1-300 | tr '\n' ' ')")"
    cp /run/torch/$name*.txt /out/
    remove $name
}

# Two jobs on the same GPUs are suspended and resumed at the same time, and then checkpointed and restored.
neighbours() { # MODE COUNT
    local jobs=($1-left $1-right) job
    has_gpus $2 && has_torch "$1" || return
    for job in ${jobs[@]}; do train $job $1 0 $2 0.02 || return; done
    for job in ${jobs[@]}; do neighbour $job & done
    wait
    for job in ${jobs[@]}; do cycle $job $job:1 & done
    wait
    for job in ${jobs[@]}; do ended $job $2; done
    cp /run/torch/$1-{left,right}* /out/
}
neighbour() { # NAME
    stasis suspend --root $runc_root $1 >&2
    sleep 5
    stasis resume --root $runc_root $1 >&2
    say "$1 | suspended and resumed beside another job on its GPUs: goes on: $(goes_on $1 && echo yes || echo no); $(/bin/busybox dmesg | grep -i xid | tail -n 2 | tr '\n' ' ')"
}

# Two jobs of half of the GPUs each, in two containers, are checkpointed and restored at the same time.
halves() { # MODE COUNT
    local half=$(($2 / 2)) one=$1-first two=$1-second first second
    has_gpus $2 && has_torch "$1" || return
    train $one $1 0 $half 0.02 && train $two $1 $half $half 0.02 || return
    cycle $one $one:1 &
    first=$!
    cycle $two $two:1 &
    second=$!
    wait $first $second
    ended $one $half
    ended $two $half
    compared $one $1 0 $half
    compared $two $1 $half $half
}

# The engine is killed at random moments of checkpoints: the ranks train on.
ranks_killed() { # MODE COUNT
    local mode=$1 count=$2 name=$1-killed round start whole after pids fired=0 went_on=0
    has_gpus $count && has_torch "$mode" || return
    RANDOM=${SEED:-1}
    train $name $mode 0 $count 0.02 || return
    start=$(clock)
    ctr t checkpoint --image-path /images/$name $name
    whole=$(milliseconds_since $start)
    for ((round = 1; fired < ${KILLS:-20} && round <= 60; round++)); do
        rm -rf /images/$name
        ctr t checkpoint --image-path /images/$name $name >/dev/null 2>&1 &
        local operation=$!
        after=$((RANDOM * whole / 32768))
        sleep $(awk "BEGIN { print $after / 1000 }")
        pids=$(pids_named stasis-runtime)
        [ -n "$pids" ] && kill -9 $pids && fired=$((fired + 1))
        wait $operation
        goes_on $name && went_on=$((went_on + 1)) || { echo "killed after $after ms: no steps" >>/out/ranks-killed.txt; tail -n 2 /var/log/stasis/operations.log >>/out/ranks-killed.txt; break; }
    done
    say "$name, the engine killed at random moments of a checkpoint of $whole ms, seed ${SEED:-1} | $fired fired, the ranks trained on after $went_on checkpoints; left: $(left_of $name)"
    ended $name $count
    compared $name $mode 0 $count
}
