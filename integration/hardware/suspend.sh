#!/bin/bash
# Suspends and their ends, by the driver alone and by many threads in turns.

# The number of a process's mappings of our files, and its own memory, MiB.
in_files() { grep -c 'rw-s.* /stasis-gpu-contents (deleted)$' /proc/$1/maps; }
own_mib() { awk '/^RssAnon/ { print int($2 / 1024) }' /proc/$1/status; }

suspends() { # PORTS: three times each way; the container and its ports run
    local path round start out back said answers port pid files own
    for round in 1 2 3; do
        for path in driver auto; do
            settings "[gpu_checkpoint]
path = \"$path\""
            start=$(clock)
            said=$(cuda-checkpoint --toggle --container suspended 2>&1)
            out=$(since $start)
            files=0 own=0
            for pid in $(pids_of suspended); do
                files=$((files + $(in_files $pid))) own=$((own + $(own_mib $pid)))
            done
            start=$(clock)
            said+=$(cuda-checkpoint --toggle --container suspended 2>&1)
            back=$(since $start)
            answers=$(for port in "$@"; do ask $port; done | sort | uniq -c | tr -s ' \n' ' ')
            say "suspended, $path | out $out, back $back; in $files files, own memory $own MiB; $answers $said"
        done
    done
    settings
    remove suspended
}

suspended() { # MIB
    run suspended /bin/memcheck $1 10070
    say "memcheck $1 MiB | $(until_up 10070)"
    suspends 10070
}

suspended_sixteen() {
    local port
    run suspended /bin/sh -c "for port in \$(seq 11100 11115); do STASIS_TAG=p\$port /bin/memcheck $((${MIB:-8192} / 8)) \$port & done; wait"
    for port in {11100..11115}; do until_up $port >/dev/null; done
    say "16 processes of $((${MIB:-8192} / 8)) MiB | "
    suspends {11100..11115}
}

# A suspended container is checkpointed, goes on, and is restored.
suspended_and_checkpointed() {
    local name=suspended
    run $name /bin/memcheck ${MIB:-8192} 10071
    local first=$(until_up 10071)
    cuda-checkpoint --toggle --container $name
    ctr t checkpoint --image-path /images/$name $name
    phases >>/out/phases.txt
    cuda-checkpoint --toggle --container $name
    local second=$(ask 10071)
    cuda-checkpoint --toggle --container $name
    ctr c checkpoint --rw --image --task $name $name:1
    remove $name
    ctr c restore --rw --live $name $name:1
    say "suspended, then checkpointed | $first, $second, restored: $(ask 10071) (${MIB:-8192} MiB)"
    rm -rf /images/$name
    forget $name
}

# The runtime, or the process that copies, is killed while the driver works.
suspend_killed() {
    run suspended /bin/memcheck ${MIB:-8192} 10072
    local answers=$(until_up 10072) who try
    for who in stasis-gpu-copy cuda-checkpoint stasis-gpu-copy cuda-checkpoint; do
        for try in 0.2 0.5 0.8 1.2; do
            cuda-checkpoint --toggle --container suspended >/run/said.txt 2>&1 &
            sleep $try
            kill -9 $(grep -lx "$who" /proc/[0-9]*/comm | grep -o '[0-9]*') 2>/run/none
            wait $!
            for again in {1..200}; do [ -z "$(grep -lx stasis-keeper /proc/[0-9]*/comm)" ] && break; sleep 0.1; done
            [ "$(cuda-checkpoint --get-state --container suspended | cut -d' ' -f2)" = running ] ||
                cuda-checkpoint --toggle --container suspended
            answers+=", $who after $try s: $(ask 10072)"
        done
    done
    say "a suspend is cut off | $answers; left: $(left_of suspended)"
    remove suspended
}
