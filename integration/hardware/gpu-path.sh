# Measures the path of GPU contents, as lines "bench NAME MEDIAN worst WORST", seconds; sourced by inside.sh.

# Lists of sections, those that matter most first: the device's time may end before the list does.
preset() { # NAME
    case $1 in
    gpu-path)
        # Sixteen processes, and five rounds of two paths, take minutes.
        SECTION_S=${SECTION_S:-540}
        sections=(counter "through_shim gpu_bench 8 5 auto driver" "sixteen_bench 3" "replicas 8192" "cgroup_extra 8192"
            "gpu_path 8192" other_gpu two_in_parallel "on_two_gpus 8192" "through_shim without_nvlink")
        ;;
    gpu-path-64g) # the driver's own path needs twice this machine's memory
        SECTION_S=${SECTION_S:-900}
        sections=("through_shim gpu_bench 64 5 auto" "gpu_path 65536")
        ;;
    *)
        say "there is no preset $1"
        sections=()
        ;;
    esac
}

# Whole commands of ctr, and of podman if it is packed, with contents apart on a tmpfs, memory warm, words verified each time; and how long a checkpoint
# that goes on keeps the job from working. The paths take turns.
gpu_bench() { # GIB ROUNDS PATH...
    local gib=$1 round path what
    local -A took=()
    for ((round = 0; round < $2; round++)); do
        for path in "${@:3}"; do
            gpu_bench_once $((gib * 1024)) $path
            # podman copies in the same way with the driver's path, and each takes a minute.
            [ $path = driver ] || [ ! -x /usr/bin/podman ] || gpu_bench_podman $((gib * 1024)) $path
        done
    done
    for what in checkpoint restore stop goes-on podman podman-stop; do figures gpu-${gib}g-$what "${@:3}"; done
    settings
}
by_path() { settings "$(contents ${2:-${PLACE:-tmpfs}})"$'\n[gpu_checkpoint]\npath = "'$1$'"'; } # PATH [PLACE]
locked() { # how long CUDA processes were, in the last checkpoint
    grep '"operation":"checkpoint"' /var/log/stasis/operations.log | tail -n 1 | sed 's/.*"locked_seconds":\([0-9.]*\).*/\1/'
}
keep_time() { # WHAT PATH SECONDS
    local key="$1 $2"
    took[$key]+="${3%% *} "
}
gpu_bench_once() { # MIB PATH
    local name=bench start answers
    by_path $2
    run $name /bin/memcheck $1 10061
    answers=$(until_up 10061)
    warm $(($1 + $1 / 4))
    stasis-runtime --root /run/containerd/runc/default checkpoint --leave-running --image-path /images/$name $name </dev/null
    keep_time stop $2 "$(locked)"
    answers+=", $(ask 10061)"
    forget_stores
    warm $(($1 + $1 / 4))
    start=$(clock)
    ctr c checkpoint --rw --image --task $name $name:1
    keep_time goes-on $2 "$(since $start)"
    answers+=", $(ask 10061)"
    remove $name
    warm $(($1 + $1 / 4))
    start=$(clock)
    ctr c restore --rw --live $name $name:1
    keep_time restore $2 "$(since $start)"
    answers+=", $(ask 10061)"
    forget_stores
    warm $(($1 + $1 / 4))
    start=$(clock)
    ctr t checkpoint --exit --image-path /images/$name-2 $name
    keep_time checkpoint $2 "$(since $start)"
    rm -rf /images/$name*
    forget $name
    forget_stores
    say "gpu_bench $* | $answers: $(one_line checkpoint)"
}
gpu_bench_podman() { # MIB PATH
    local name=bench-podman start answers
    has_podman "gpu_bench $*" || return
    by_path $2
    podman_run $name /bin/memcheck $1 10062
    answers=$(until_up 10062)
    warm $(($1 + $1 / 4))
    start=$(clock)
    $p container checkpoint -R $name >/dev/null || say "gpu_bench $* | podman's checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
    keep_time podman $2 "$(since $start)"
    keep_time podman-stop $2 "$(locked)"
    say "gpu_bench $*, podman -R | $answers, $(ask 10062): $(one_line checkpoint)"
    $p rm -f -t 0 $name >/dev/null
    forget_stores
}
figures() { # WHAT PATH...: of all rounds; the path "auto" is the one that the figures are named for
    local path what=${1#gpu-*g-} suffix
    for path in "${@:2}"; do
        suffix=-$path
        [ $path != auto ] || suffix=
        [ -z "${took["$what $path"]}" ] || figure $1$suffix ${took["$what $path"]}
    done
    [ -z "${took["$what auto"]}" ] || [ -z "${took["$what driver"]}" ] ||
        say "bench $1-ratio $(awk "BEGIN { printf \"%.2f\", $(middle ${took["$what driver"]}) / $(middle ${took["$what auto"]}) }")"
}
figure() { # NAME SECONDS...
    say "bench $1 $(middle "${@:2}") worst $(printf '%.2f' "$(printf '%s\n' "${@:2}" | sort -n | tail -n 1)")"
}
middle() { # SECONDS...: the median
    printf '%s\n' "$@" | sort -n | awk '{ all[NR] = $1 } END { printf "%.2f", (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

on_two_gpus() { # MIB on each: one process, so one driver call for both
    two_gpus "one process on two GPUs" || return
    local name=both-gpus answers start checkpoint restore
    # It never enables peer access, and nothing shows that.
    extra=(--device /dev/nvidia1 --annotation io.stasis.peer-access=none)
    by_path auto
    run $name /bin/memcheck $1 10063 gpus=2
    answers=$(until_up 10063)
    warm $(($1 * 5 / 2))
    start=$(clock)
    ctr c checkpoint --rw --image --task $name $name:1 || say "one process on two GPUs | checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
    checkpoint=$(since $start)
    answers+=", $(ask 10063)"
    remove $name
    warm $(($1 * 5 / 2))
    start=$(clock)
    ctr c restore --rw --live $name $name:1
    restore=$(since $start)
    say "one process with $1 MiB on each of two GPUs | $answers, $(ask 10063); checkpoint $checkpoint: $(one_line checkpoint); restore $restore: $(one_line restore)"
    forget $name
    forget_stores
    extra=()
    settings
}

gpu_path() { # MIB: the driver's own copying beside ours, in turns
    local name=path$1 first pid exit
    run $name /bin/memcheck $1 10060
    first=$(until_up 10060)
    pid=$(ctr t ls | awk -v name=$name '$1 == name { print $2 }')
    gpu-path both $pid $(($1 + 1024)) ${ROUNDS:-3} >/out/gpu-path-$1.txt 2>&1
    exit=$?
    say "GPU path, $1 MiB | $first, exit $exit: $(grep -E 'driver|ours|Error' /out/gpu-path-$1.txt | tr -s '\n ' ' '); $(ask 10060)"
    forget $name
}

gpu_path_of_many() { # COUNT: so many containers of 1 GiB, all at the same time
    local way workers id pid pids=() start line="GPU path of $1 containers of 1 GiB |"
    for ((id = 0; id < $1; id++)); do run many$id /bin/memcheck 1024 $((10100 + id)); done
    for ((id = 0; id < $1; id++)); do until_up $((10100 + id)) >/dev/null; done
    pids=($(ctr t ls | awk '/^many/ { print $2 }'))
    for way in driver 'ours 0' 'ours 1' 'ours 3' 'ours 7'; do
        read -r way workers <<<"$way"
        start=$(clock)
        for pid in ${pids[@]}; do gpu-path $way $pid 1700 1 $workers >/out/many-$way-$workers-$pid.txt 2>&1 & done
        wait $(jobs -p)
        line+=" $way $workers: $(since $start), slowest out $(slowest $way-$workers out), in $(slowest $way-$workers in);"
    done
    for ((id = 0; id < $1; id++)); do line+=" $(ask $((10100 + id)))"; remove many$id; done
    say "$line"
}
slowest() { # FILES DIRECTION
    grep -h "\(driver\|ours\) $2:" /out/many-$1-*.txt | awk '{ print $3 }' | sort -n | tail -n 1
}
