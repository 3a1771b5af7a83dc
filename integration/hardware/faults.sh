# Sections in which something dies at a random moment, or another job takes the GPU's memory. Sourced by inside.sh.

fault_dir() { echo /run/stasis/containers/*/$1; }
pids_named() { # COMM...: all of this machine's processes of these names are ours
    local name
    for name in "$@"; do grep -lx "${name:0:15}" /proc/[0-9]*/comm | cut -d/ -f3; done
}
milliseconds_since() { awk "BEGIN { print int(1000 * ($(clock) - $1)) }"; }
tell_of() { # NAME FILE: all that one may want to know of a container that hangs
    {
        echo "--- $1: $(ctr t ls | grep $1) $(timeout 20 cuda-checkpoint --get-state --container $1 2>&1)"
        grep -H . $(fault_dir $1)/*
        cat /sys/fs/cgroup/default/$1/cgroup.events /sys/fs/cgroup/freezer/default/$1/freezer.state
        local process
        for process in $(pids_named stasis-runtime stasis-keeper runc criu memcheck ctr stasis); do
            echo "$process $(tr '\0' ' ' </proc/$process/cmdline | cut -c1-160) $(grep -h State /proc/$process/status) $(cat /proc/$process/wchan)"
        done
        tail -n 4 /var/log/stasis/operations.log
    } >>$2 2>&1
}

# Twenty kills that hit, at random moments (by SEED): of the runtime, of CRIU, of runtime and keeper, in checkpoints and
# in restores. The counter of generations goes on each time, and all of the memory is verified with it.
random_kills() {
    local name=random-kills round whole slowest=0 good=0 fired=0 lines=/out/random-kills.txt
    RANDOM=${SEED:-1}
    run $name /bin/memcheck ${MIB:-8192} 10050
    until_up 10050 >/dev/null
    local start=$(clock)
    ctr t checkpoint --image-path /images/$name $name
    whole=$(milliseconds_since $start)
    rm -rf /images/$name
    for ((round = 1; fired < 20 && round <= 60; round++)); do
        local victims=(stasis-runtime criu both) victim after phase pids answer
        victim=${victims[RANDOM % 3]} after=$((RANDOM * whole / 32768))
        echo "$round: $victim after $after of $whole ms" >>$lines
        timeout 60 ctr t checkpoint --image-path /images/$name $name >/run/said.txt 2>&1 &
        local operation=$!
        sleep $(awk "BEGIN { print $after / 1000 }")
        phase=$(grep -ho '"phase":"[^"]*"' $(fault_dir $name)/progress.json)
        case $victim in
        both) pids=$(pids_named stasis-keeper stasis-runtime) ;;
        *) pids=$(pids_named $victim) ;;
        esac
        # No such process may exist yet, or any longer.
        [ -n "$pids" ] && kill -9 $pids && fired=$((fired + 1))
        start=$(clock)
        wait $operation || [ $? != 124 ] || tell_of $name $lines
        [ $victim != both ] || timeout 60 stasis recover >>$lines 2>&1 || tell_of $name $lines
        answer=$(ask 10050 30) && [ -n "$answer" ] || tell_of $name $lines
        local took=$(milliseconds_since $start)
        [ "$took" -le $slowest ] || slowest=$took
        [ "$answer" = "ok $round" ] && good=$((good + 1))
        echo "$round: killed in ${phase:-no phase}, pids ${pids//$'\n'/ }: $answer $took ms later; $(tail -n 1 /run/said.txt | cut -c1-300)" >>$lines
        rm -rf /images/$name
    done
    say "kills at random moments of a checkpoint of ${MIB:-8192} MiB, seed ${SEED:-1} | $fired fired in $((round - 1)) checkpoints, the next generation was right after $good, the slowest $slowest ms after the kill"
    ctr t checkpoint --exit --image-path /images/$name $name
    remove $name
    say "the same | checkpointed and ended, left: $(left_of $name)"
    rm -rf /images/$name
}

# Prints free GPU memory, MiB.
free_mib() {
    if [ -x $nvidia/bin/nvidia-smi ]; then
        smi -i 0 --query-gpu=memory.free --format=csv,noheader,nounits
    else
        echo "${standin_mib:-1000}"
    fi
}
toggle() { cuda-checkpoint --toggle --container $1 >/run/said-$1.txt 2>&1; }
states() { local each; for each in "$@"; do echo -n "$each $(cuda-checkpoint --get-state --container $each | awk '{ print $NF }') "; done; }

# Two suspended containers that do not both fit are resumed at the same time: none is lost.
two_that_do_not_fit() {
    local mib=${MIB:-8192} each hog exits=() first=()
    standin_orders "memory ${standin_mib:-1000}\n"
    for each in one two; do
        run $each /bin/memcheck $mib $([ $each = one ] && echo 10051 || echo 10052)
    done
    first=("$(until_up 10051)" "$(until_up 10052)")
    toggle one && toggle two
    hog=$(($(free_mib) - mib - mib / 2))
    run hog /bin/memcheck $hog 10053
    until_up 10053 >/dev/null
    toggle one &
    local pid=$!
    toggle two
    exits=($?)
    wait $pid
    exits=($? "${exits[@]}")
    say "two suspended containers of $mib MiB, room for one ($(free_mib) MiB left by now), taken up at once | ${first[*]}; exits ${exits[*]}; $(states one two): $(cat /run/said-one.txt /run/said-two.txt | cut -c1-400 | tr '\n' ' ')"
    remove hog
    for each in one two; do
        [ "$(cuda-checkpoint --get-state --container $each | awk '{ print $NF }')" = running ] || toggle $each
    done
    say "the same, with room | $(states one two); $(ask 10051), $(ask 10052)"
    remove one
    remove two
    standin_orders ''
}

# Another job fills the GPU while CRIU dumps, and CRIU fails: the container waits for room, and goes on by itself.
filled_meanwhile() {
    local name=filled mib=${MIB:-8192} first said exit hog
    standin_orders "memory ${standin_mib:-1000}\n"
    mkdir -p /run/hold
    printf '%s\n' '#!/bin/sh' '[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] && [ -d /run/hold ] || exit 0' ': >/run/hold/reached' \
        'while [ ! -e /run/hold/go ]; do sleep 0.05; done' 'exit 1' >/run/hold.sh
    chmod 755 /run/hold.sh
    cp /etc/criu/runc.conf /run/runc.conf
    echo 'action-script /run/hold.sh' >>/etc/criu/runc.conf
    settings $'[deadlines]\nroom_s = 2'
    run $name /bin/memcheck $mib 10054
    first=$(until_up 10054)
    ctr t checkpoint --image-path /images/$name $name >/run/said.txt 2>&1 &
    local operation=$! try
    for try in {1..600}; do [ -e /run/hold/reached ] && break; sleep 0.1; done
    hog=$(($(free_mib) - mib / 2))
    run hog /bin/memcheck $hog 10055
    local other=$(until_up 10055)
    : >/run/hold/go
    wait $operation
    exit=$?
    cp /run/runc.conf /etc/criu/runc.conf
    rm -rf /run/hold
    said=$(tail -n 1 /run/said.txt | cut -c1-900)
    say "the GPU is filled during a dump that fails | $first; hog of $hog MiB: $other; exit $exit: $said; $(states $name)"
    local start=$(clock)
    remove hog
    say "the same, with room again | $(ask 10054), $(since $start) after; $(states $name); $(phases)"
    ctr t checkpoint --image-path /images/$name-2 $name
    say "the same, checkpointed again | exit $?, $(ask 10054)"
    remove $name
    rm -rf /images/$name*
    settings
    standin_orders ''
}
