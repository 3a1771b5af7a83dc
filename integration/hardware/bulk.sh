# Measures how long GPU contents take, by place, size and content; sourced by inside.sh.

# Prints the settings of a place of GPU contents. The disk of these machines is memory as well.
contents() { # tmpfs|disk|image
    case $1 in
    tmpfs)
        mountpoint -q /contents || { mkdir -p /contents && mount -t tmpfs -o size=70%,mode=700,huge=always tmpfs /contents; }
        echo $'[gpu_contents]\ndirectory = "/contents"'
        ;;
    disk) echo $'[gpu_contents]\ndirectory = "/var/lib/contents"' ;;
    esac
}

# The memory of these machines goes back to their host when it is free, and its first touch then
# costs more than all else: it is touched and freed just before each measurement.
warm() { # MIB, or what there is
    local room=$(($(available) - 8192))
    set -- $(($1 < room ? $1 : room))
    mkdir -p /pool && mount -t tmpfs -o size=100%,huge=always tmpfs /pool
    /bin/busybox dd if=/dev/zero of=/pool/memory bs=4M count=$(($1 / 4))
    umount /pool
}

available() { # MiB
    local name value rest
    while read -r name value rest; do [ $name != MemAvailable: ] || echo $((value / 1024)); done </proc/meminfo
}

watch_memory() { # what is available at least, until it is killed
    local least=$(available) now
    while echo $least >/work/least && sleep 0.02; do
        now=$(available)
        least=$((now < least ? now : least))
    done
}

one_line() { # OPERATION: its phases, and what the plugin told
    grep "\"operation\":\"$1\"" /var/log/stasis/operations.log | tail -n 1 | tee -a /out/operations.txt |
        sed 's/{"name":"\([^"]*\)","seconds":\([0-9]*\.[0-9]\{1,3\}\)[0-9]*[^}]*}/\1 \2/g; s/.*"phases"://; s/[]["]//g' | cut -c1-500
}

bulk() { # tmpfs|disk|image|criu MIB [zero=PERCENT]
    local place=$1 mib=$2 start checkpoint first second third name=bulk
    if [ $place = criu ]; then
        settings $'[gpu_checkpoint]\npath = "driver"'
    else
        settings "$(contents $place)"
    fi
    run $name /bin/memcheck $mib 10020 ${3:-}
    first=$(until_up 10020)
    warm $((mib + mib / 4))
    start=$(clock)
    ctr c checkpoint --rw --image --task $name $name:1 || say "bulk $* | checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
    checkpoint=$(since $start)
    second=$(ask 10020)
    say "bulk $* | $first, checkpoint $checkpoint, $second: $(one_line checkpoint), resume: $(one_line resume)"
    remove $name
    warm $((mib + mib / 4))
    start=$(clock)
    ctr c restore --rw --live $name $name:1 || say "bulk $* | restore failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
    restore=$(since $start)
    third=$(ask 10020)
    say "bulk $* | restore $restore, $third: $(one_line restore)"
    warm $((mib + mib / 4))
    local before=$(available) watcher
    watch_memory &
    watcher=$!
    start=$(clock)
    ctr t checkpoint --exit --image-path /images/bulk $name || say "bulk $* | last checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
    say "bulk $* | checkpoint that ends it $(since $start): $(one_line checkpoint)"
    kill $watcher
    say "bulk $* | host memory taken at most: $((before - $(</work/least))) MiB for $mib MiB on the GPU"
    rm -rf /images/bulk
    forget $name
    forget_stores
    mv /var/log/stasis/operations.log /var/log/stasis/operations-$1-$2-${3:-full}.log
    settings
}

# The runtime's own commands on a container that is not paused, and ctr's, which pauses it: GPU contents go through
# files, or, with the path "driver", through memory of the process and CRIU. Both in one run, in turns.
from_files() { # PLACE MIB [ROUNDS [PATHS]]
    local path round
    for ((round = 0; round < ${3:-2}; round++)); do
        for path in ${4:-auto driver}; do from_files_once $1 $2 $path; done
    done
    settings
}
from_files_once() { # PLACE MIB PATH
    local name=direct bundle=/run/moved start first second third took exit
    by_path $3 $1
    run $name /bin/memcheck $2 10060
    first=$(until_up 10060)
    mkdir -p $bundle/rootfs
    cp /run/containerd/io.containerd.runtime.v2.task/default/$name/config.json $bundle/
    ctr image mount --rw localhost/stasis-test:latest $bundle/rootfs >/dev/null
    local runtime=(stasis-runtime --root /run/containerd/runc/default --log /run/direct.log)
    warm $(($2 + $2 / 4))
    start=$(clock)
    "${runtime[@]}" checkpoint --leave-running --image-path /images/$name $name </dev/null
    exit=$? took=$(since $start) second=$(ask 10060)
    say "path $3, contents: $1, $2 MiB | $first; goes on: exit $exit in $took, $second: $(one_line checkpoint) $(tail -n 1 /run/direct.log | cut -c1-400)"
    forget_stores
    warm $(($2 + $2 / 4))
    start=$(clock)
    ctr t checkpoint --image-path /images/$name-3 $name
    exit=$? took=$(since $start) second=$(ask 10060)
    say "the same | by ctr, paused, goes on: exit $exit in $took, $second: $(one_line checkpoint), resume: $(one_line resume)"
    forget_stores
    warm $(($2 + $2 / 4))
    start=$(clock)
    "${runtime[@]}" checkpoint --image-path /images/$name-2 $name </dev/null
    say "the same | ends: exit $? in $(since $start): $(one_line checkpoint) $(tail -n 1 /run/direct.log | cut -c1-400)"
    remove $name
    warm $(($2 + $2 / 4))
    coproc sleep 1000
    start=$(clock)
    restore_moved $name-2
    exit=$? took=$(since $start) third=$(ask 10060)
    say "the same | restored: exit $exit in $took, $third: $(one_line restore) $(tail -n 1 /run/moved.log | cut -c1-400)"
    stasis-runtime delete --force moved
    kill $COPROC_PID
    umount $bundle/rootfs
    rm -rf $bundle /images/$name* /run/direct.log /run/moved.log
    forget_stores
}
forget_stores() { rm -rf /contents/* /var/lib/contents/*; }
