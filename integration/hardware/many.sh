# One image or one GPU for many, and what that takes of the machine's memory; sourced by inside.sh.

# Sixteen processes of 1 GiB in one container, whole commands, contents apart on a tmpfs, memory warm.
sixteen_bench() { # ROUNDS [MIB]
    local rounds=$1 mib=${2:-1024} round port start ended=() restored=() answers
    settings "$(contents tmpfs)"
    for ((round = 0; round < rounds; round++)); do
        run crowd /bin/sh -c "for port in \$(seq 11000 11015); do STASIS_TAG=p\$port /bin/memcheck $mib \$port & done; wait"
        for port in {11000..11015}; do until_up $port >/dev/null; done
        warm $((mib * 20))
        ctr c checkpoint --rw --image --task crowd crowd:1
        remove crowd
        warm $((mib * 20))
        start=$(clock)
        ctr c restore --rw --live crowd crowd:1
        restored+=("$(since $start)")
        answers=$(for port in {11000..11015}; do ask $port; done | sort | uniq -c | tr -s ' \n' ' ')
        say "16 processes of $mib MiB | $(one_line checkpoint); $(one_line restore); answers: $answers"
        warm $((mib * 20))
        start=$(clock)
        ctr t checkpoint --exit --image-path /images/crowd crowd
        ended+=("$(since $start)")
        say "16 processes of $mib MiB, ended | ${ended[-1]}: $(one_line checkpoint)"
        rm -rf /images/crowd
        forget crowd
        forget_stores
    done
    figure gpu-16x1g-checkpoint "${ended[@]% s}"
    figure gpu-16x1g-restore "${restored[@]% s}"
    settings
}

# Four containers restored from one image at the same time: what they take of the machine's memory, the image's copy included.
replicas() { # MIB
    local mib=$1 copy before least number answers=() watcher restores=()
    settings "$(contents tmpfs)"
    local gpu_options=("${gpu_options[@]:1}")
    run replica0 /bin/memcheck $mib 10070
    answers+=("$(ask_inside replica0)")
    for number in 1 2 3 4; do replica_bundle $number; done
    warm $((mib * 5))
    copy=$(available)
    stasis-runtime --root /run/containerd/runc/default checkpoint --image-path /images/replica replica0 </dev/null
    remove replica0
    before=$(available)
    watch_memory &
    watcher=$!
    coproc sleep 1000
    # A process in the background has no access to a coprocess.
    exec 8<&"${COPROC[0]}" 9>&"${COPROC[1]}"
    for number in 1 2 3 4; do restore_replica $number & restores+=($!); done
    wait "${restores[@]}"
    kill $watcher
    least=$(</work/least)
    for number in 1 2 3 4; do answers+=("$(ask_inside replica$number)"); done
    say "four replicas of $mib MiB | ${answers[*]}; memory of the image: $((copy - before)) MiB; taken by four restores at the same time, at most: $((before - least)) MiB, afterwards: $((before - $(available))) MiB; $(tail -qn 1 /run/replica?.log | cut -c1-300)"
    say "bench gpu-replicas-memory $(awk "BEGIN { printf \"%.2f\", 1 + ($before - $least) / $mib }")"
    for number in 1 2 3 4; do
        stasis-runtime delete --force replica$number
        umount /run/replica$number/rootfs
    done
    kill $COPROC_PID
    exec 8<&- 9>&-
    rm -rf /run/replica? /images/replica
    forget_stores
    settings
}
replica_bundle() { # NUMBER
    local bundle=/run/replica$1
    mkdir -p $bundle/rootfs
    sed "s|/default/replica0|/default/replica$1|" /run/containerd/io.containerd.runtime.v2.task/default/replica0/config.json >$bundle/config.json
    ctr image mount --rw localhost/stasis-test:latest $bundle/rootfs >/dev/null
}
restore_replica() { # NUMBER
    local bundle=/run/replica$1
    stasis-runtime --log $bundle.log restore --detach --image-path /images/replica --work-path $bundle/work --bundle $bundle replica$1 \
        <&8 >&9 2>&1
}
ask_inside() { # NAME: the answer of a workload in the container's own network
    local try answer
    # runc restores into a network where nothing is up.
    /bin/busybox nsenter -t "$(pid_of $1)" -n /bin/busybox ifconfig lo 127.0.0.1 up
    for try in {1..10}; do
        answer=$(/bin/busybox nsenter -t "$(pid_of $1)" -n timeout 60 bash -c 'exec 3<>/dev/udp/127.0.0.1/10070; echo x >&3; head -n 1 <&3') &&
            [ -n "$answer" ] && { echo "$answer"; return; }
        sleep 0.3
    done
    echo "no answer"
}
pid_of() { # NAME: the first process, as its own runtime knows it
    pids_of $1 | head -n 1 | grep . || stasis-runtime state $1 | grep '"pid"' | grep -o '[0-9]*'
}

# Measures how much a checkpoint and a restore charge the container's cgroup beyond the charge before.
cgroup_extra() { # MIB
    local mib=$1 first before peak operation line="charged to the container's cgroup, $1 MiB on the GPU |"
    run charged /bin/memcheck $mib 10071
    first=$(until_up 10071)
    local charge=/sys/fs/cgroup/default/charged/memory.current
    [ -e $charge ] || charge=$(ls /sys/fs/cgroup/memory/default/charged/memory.usage_in_bytes) || { say "$line no memory controller here"; remove charged; return; }
    before=$(<$charge)
    watch_charge $charge &
    local watcher=$!
    ctr c checkpoint --rw --image --task charged charged:1
    kill $watcher
    peak=$(</work/charge)
    line+=" $first, before $((before >> 20)) MiB, checkpoint at most $((peak >> 20)) MiB"
    remove charged
    echo 0 >/work/charge
    watch_charge $charge &
    watcher=$!
    ctr c restore --rw --live charged charged:1
    kill $watcher
    say "$line, restore at most $(($(</work/charge) >> 20)) MiB, $(ask 10071)"
    say "bench gpu-cgroup-extra-mib $(((peak - before) >> 20))"
    forget charged
}
watch_charge() { # FILE: the most that it is charged, until it is killed
    local most=0 now
    while sleep 0.01; do
        now=$(cat $1 2>/dev/null) || continue
        most=$((now > most ? now : most))
        echo $most >/work/charge
    done
}
