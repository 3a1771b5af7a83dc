#!/bin/bash
# Containers that are checkpointed and restored as one, without an engine; sourced by inside.sh.

group_root=/run/group
run_bundle() { # ID: a container of the bundle that was made for it
    stasis-runtime --root $group_root run --detach --bundle /run/bundle-$1 "$1" </dev/null >/dev/null 2>&1
}
# ctr makes the specification, and its container is gone before the other one begins.
make_bundle() { # ID COMMAND...
    local made=/run/containerd/io.containerd.runtime.v2.task/default/$1 bundle=/run/bundle-$1
    run "$@"
    mkdir -p $bundle
    cp -a $made/rootfs $bundle/
    sed "s#\"/default/$1\"#\"/default/group-$1\"#" $made/config.json >$bundle/config.json
    remove "$1"
    run_bundle "$1"
}
end_bundle() { # ID
    stasis-runtime --root $group_root delete --force "$1"
}
together() { # VERB ARGUMENT...: of all containers; what it says
    local verb=$1 said exit
    shift
    said=$(stasis "$verb" --root $group_root "$@" 2>&1 </dev/null)
    exit=$?
    echo "$verb ${*: -2}: exit $exit: $said" >>/out/group.txt
    echo "exit $exit, $(tail -n 1 <<<"$said" | cut -c1-160)"
}
group_states() { stasis-runtime --root $group_root list -f json | grep -o '"status":"[a-z]*"' | sort | uniq -c | tr -s ' \n' ' '; }

# A checkpoint that goes on, a kill, a restore of both; then one that ends them. Memory is verified and refilled with each answer, and
# the numbers count on from where they were saved.
group_of_two() { # MIB
    local id said into=/images/group bundles=(--bundle one=/run/bundle-one --bundle two=/run/bundle-two)
    both() { echo "$(ask 10095) $(ask 10096)"; }
    make_bundle one /bin/memcheck $1 10095
    make_bundle two /bin/memcheck $(($1 / 2)) 10096
    say "group of $1 and $(($1 / 2)) MiB | $(until_up 10095) $(until_up 10096), processes on the GPU: $(on_gpu)"
    said=$(together checkpoint -R --group one two --into $into)
    say "the same | checkpoint -R --group: $said; both go on: $(both), $(both)"
    for id in one two; do end_bundle $id; done
    say "the same | killed, processes on the GPU: $(on_gpu)"
    said=$(together restore --group $into "${bundles[@]}")
    say "the same | restore --group: $said; from where they were saved: $(both)"
    phases >>/out/phases.txt
    said=$(together checkpoint --group one two --into $into-ended)
    say "the same | checkpoint --group that ends them: $said; $(group_states) left, processes on the GPU: $(on_gpu)"
    said=$(together restore --group $into-ended "${bundles[@]}")
    say "the same | restored: $said: $(both)"
    said=$(together restore --group $into "${bundles[@]}")
    say "the same | restored again while they run, which is refused: $said: $(both)"
    one_that_cannot $into-failed
    for id in one two; do end_bundle $id; done
    grep -h '"operation":"\(checkpoint\|restore\)"' /var/log/stasis/operations.log | tail -n 12 >>/out/operations.txt
    rm -rf $into* /run/bundle-one /run/bundle-two
}
# No driver can checkpoint managed memory.
one_that_cannot() { # DIRECTORY
    local said
    make_bundle managed /bin/memcheck 64 10097 managed
    said="$(until_up 10097); $(together checkpoint --group one managed two --into $1)"
    [ ! -e $1/group.json ] || said+="; an image is left"
    say "a group of which one cannot be checkpointed | $said; all go on: $(both), $(ask 10097)"
    end_bundle managed
    rm -rf /run/bundle-managed
}
# Paused by its caller for a checkpoint: the image is removed, and then one of the processes that hold the contents is
# killed before the resume: once the first, once the second. Then with a limit of its data, which is refused.
without_image() { # MIB
    local holders pid said
    make_bundle away /bin/memcheck $1 10098
    said=$(until_up 10098)
    for victim in first second; do
        stasis-runtime --root $group_root pause away
        stasis-runtime --root $group_root checkpoint --leave-running --image-path /images/away --work-path /run away >/out/away-$victim.txt 2>&1
        said+="; checkpoint: exit $?"
        rm -rf /images/away
        holders=($(pids_named stasis-gpu-hold))
        [ $victim = first ] || holders=(${holders[1]})
        kill -9 $holders
        stasis-runtime --root $group_root resume away >>/out/away-$victim.txt 2>&1
        said+=", ${#holders[@]} held, $victim killed, resume: exit $?: $(ask 10098)"
    done
    say "$1 MiB, paused, image removed | $said"
    pid=$(stasis-runtime --root $group_root state away | grep -o '"pid": [0-9]*' | grep -o '[0-9]*')
    prlimit --pid $pid --data=$((($(awk '/^VmData/ { print $2 }' /proc/$pid/status) + ($1 << 9)) << 10)):unlimited
    said=$(stasis-runtime --root $group_root checkpoint --leave-running --image-path /images/away --work-path /run away 2>&1)
    say "the same, its data limited | exit $?: $(tail -n 1 <<<"$said" | cut -c1-400); $(ask 10098)"
    end_bundle away
    rm -rf /run/bundle-away /images/away
}
