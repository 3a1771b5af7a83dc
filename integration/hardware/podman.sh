# Containers of podman; sourced by inside.sh.

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
