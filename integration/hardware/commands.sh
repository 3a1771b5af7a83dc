#!/bin/bash
# The operator's commands, hooks, and containers that begin with an image; sourced by inside.sh.

# The output of the commands goes into files of the results: a person reads it.
commands() { # MIB
    local name=commands out=/out/commands answers
    mkdir -p $out
    run $name /bin/memcheck $1 10090
    answers=$(until_up 10090)
    stasis doctor >$out/doctor.txt 2>&1
    answers+=", doctor exit $?"
    stasis ps >$out/ps.txt 2>&1
    stasis check $name >$out/check.txt 2>&1
    stasis suspend $name >$out/suspend.txt 2>&1
    answers+=", suspend exit $?, on the GPU $(on_gpu)"
    stasis ps >>$out/suspend.txt 2>&1
    stasis resume $name >>$out/suspend.txt 2>&1
    answers+=", resume exit $?: $(ask 10090)"
    stasis checkpoint --dry-run $name >$out/dry-run.txt 2>&1
    script -qec "stasis checkpoint -R --image $name:1 $name" $out/progress.txt </dev/null >/dev/null
    answers+=", checkpoint -R exit $?: $(ask 10090)"
    stasis checkpoint --image /images/$name $name >$out/checkpoint.txt 2>&1
    answers+=", checkpoint exit $?, on the GPU $(on_gpu)"
    stasis images /images >$out/images.txt 2>&1
    stasis verify /images/$name >>$out/images.txt 2>&1
    answers+=", verify exit $?"
    stasis inspect /images/$name >$out/inspect.txt 2>&1
    remove $name
    stasis log --timeline >$out/log.txt 2>&1
    stasis metrics >$out/metrics.txt 2>&1
    answers+=", metrics exit $?"
    say "commands through $way, $1 MiB | $answers"
    ctr image rm $name:1 >/dev/null
    rm -rf /images/$name
}

# Hooks run before the checkpoint and after the restore, in the container.
hooks() { # MIB
    local name=hooks answers said extra
    extra=(--annotation 'io.stasis.hook.before-checkpoint=echo before >>/tmp/told'
        --annotation 'io.stasis.hook.after-restore=echo after >>/tmp/told')
    run $name /bin/memcheck $1 10091
    answers=$(until_up 10091)
    ctr c checkpoint --rw --image --task $name $name:1
    answers+=", $(ask 10091)"
    remove $name
    ctr c restore --rw --live $name $name:1
    answers+=", restored: $(ask 10091)"
    said=$(ctr t exec --exec-id told $name /bin/cat /tmp/told 2>&1 | tr '\n' ' ')
    say "hooks through $way, $1 MiB | $answers; told: $said"
    forget $name
}

# Measures the time until a container answers: started cold, and restored from an image at its create.
at_create() { # MIB
    local first start cold warm extra=() from=/images/create
    settings $'[restore]\nat_create = "'$from$'"'
    mkdir -p $from
    start=$(clock)
    run origin /bin/memcheck $1 10092
    first=$(until_up 10092)
    cold=$(since $start)
    ctr t checkpoint --exit --image-path $from/origin origin
    remove origin
    extra=(--annotation io.stasis.restore=origin)
    start=$(clock)
    run next /bin/memcheck $1 10092
    warm=$(until_up 10092)
    say "at create through $way, $1 MiB | cold $first after $cold, from the image $warm after $(since $start): $(phases)"
    tail -n 2 /var/log/stasis/operations.log >>/out/operations.txt
    remove next
    settings
    rm -rf $from
}

p="podman --runtime /usr/local/bin/stasis-runtime --cgroup-manager cgroupfs"
has_podman() { # WHAT: podman is packed, and knows the image
    [ -x /usr/bin/podman ] || { say "$1 | podman is not packed"; return 1; }
    # podman looks for its network program, which a container on the host's network never needs.
    mkdir -p /usr/lib/podman && printf '#!/bin/sh\n' >/usr/lib/podman/netavark && chmod 755 /usr/lib/podman/netavark
    $p image exists localhost/stasis-test:latest || $p load -i /images/test.tar >/dev/null
}
podman_run() { # NAME COMMAND...: a container with the GPU
    $p run -d --network host --name $1 --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm \
        -v $nvidia:$nvidia:ro -e LD_LIBRARY_PATH=$nvidia/lib64 localhost/stasis-test:latest "${@:2}" </dev/null >/dev/null
}

with_podman() {
    has_podman podman || return
    podman_run pod /bin/counter 10004
    local first=$(until_up 10004)
    $p container checkpoint pod >/dev/null
    local gpu=$(on_gpu)
    phases >>/out/phases.txt
    $p container restore pod >/dev/null
    phases >>/out/phases.txt
    say "counter through podman | $first, checkpointed (processes on the GPU: $gpu), restored: $(ask 10004)"
    $p rm -f -t 0 pod >/dev/null
}
