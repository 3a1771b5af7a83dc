#!/bin/bash
# docs/quickstart.md on a GPU, its blocks as they stand there; sourced by inside.sh. Not here: dpkg, systemd, Docker.

block() { # HEADING NUMBER: its commands, without the output that it shows
    awk -v heading="## $1" -v number="$2" '
        /^## / { within = $0 == heading }
        within && /^```/ { fences++; next }
        within && fences == 2 * number - 1' /work/quickstart.md | awk '
        { lines[NR] = $0 }
        sub(/^\$ /, "") { shows = 1; commands[NR] = $0; goes_on = /\\$/; next }
        goes_on { commands[NR] = $0; goes_on = /\\$/ }
        END { for (i = 1; i <= NR; i++) if (!shows) print lines[i]; else if (i in commands) print commands[i] }'
}
# Makes this a node: a CDI file, and the image, whose training is a counter in GPU memory.
is_a_node() {
    local path nodes=
    for path in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do nodes+="{\"path\":\"$path\"},"; done
    mkdir -p /etc/cdi
    printf '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"all","containerEdits":{"deviceNodes":[%s]}}],"containerEdits":{"env":["LD_LIBRARY_PATH=%s/lib64"],"mounts":[{"hostPath":"%s","containerPath":"%s","options":["ro","rbind"]}]}}\n' \
        "${nodes%,}" $nvidia $nvidia $nvidia >/etc/cdi/nvidia.json
    printf '#!/bin/sh\n' >/usr/local/bin/systemctl && chmod 755 /usr/local/bin/systemctl
    $p create --name training --network host localhost/stasis-test:latest >/dev/null
    $p commit -q --change 'CMD ["/bin/counter","10000"]' training example.com/train:latest >/dev/null
    $p rm training >/dev/null
    $p save -q -o /images/train.tar example.com/train:latest
    ctr image import /images/train.tar >/dev/null
}
as_written() { # HEADING NUMBER: says how it ended if it failed
    local text
    text=$(block "$1" $2)
    # As gpu_options in inside.sh.
    [[ ${gpu_options[*]} != *cpu-shares* ]] || text=${text//ctr run -d/ctr run -d --cpu-shares 0}
    (cd /root && bash -ec "$text") >>/out/quickstart.txt 2>&1 || say "quickstart | $1, block $2: exit $?: $(tail -n 3 /out/quickstart.txt | cut -c1-600)"
}
quickstart() {
    has_podman quickstart || return
    is_a_node
    as_written "The node" 2
    say "quickstart | stasis doctor: $(tail -n 1 /out/quickstart.txt)"
    local engine first free
    for engine in podman containerd; do
        as_written $engine 1
        as_written $engine 2
        first=$(until_up 10000)
        as_written $engine 3
        free=$(on_gpu)
        as_written $engine 4
        say "quickstart, $engine | $first, checkpointed (processes on the GPU: $free), restored: $(until_up 10000)"
        as_written $engine 5
    done
    as_written "What was done" 1
    rm -r /etc/cdi /images/train.tar
}
