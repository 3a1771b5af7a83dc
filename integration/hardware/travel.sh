#!/bin/bash
# Images that go through a registry on this machine; sourced by inside.sh.

registry_at=localhost:5000
start_registry() {
    mkdir -p /registry
    printf 'version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: /registry}}\nhttp: {addr: "127.0.0.1:5000"}\n' >/run/registry.yml
    docker-registry serve /run/registry.yml >/out/registry.txt 2>&1 </dev/null &
    registry=$!
    local try
    for try in {1..100}; do (exec 3<>/dev/tcp/127.0.0.1/5000) && return; sleep 0.1; done
}
end_registry() {
    kill $registry
    wait $registry
    rm -rf /registry
}
rate() { # BYTES START
    awk "BEGIN { seconds = $(clock) - $2; printf \"%.2f s, %.2f GiB/s\", seconds, $1 / (seconds * 1073741824) }"
}
number() { grep -o "\"$1\": *[0-9]*" | grep -o "[0-9]*$"; } # FIELD

# Pushed, wiped, pulled, restored, with all words as they were; and the same bytes by skopeo, in the same run.
travel() { # MIB
    local start first said bytes answers name=travel image=/images/travel
    has_registry travel || return
    run $name /bin/memcheck $1 10093
    first=$(until_up 10093)
    ctr t checkpoint --exit --image-path $image $name || say "travel | checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
    remove $name
    start_registry
    start=$(clock)
    said=$(stasis push --json http://$registry_at/jobs/travel:1 $image)
    bytes=$(number bytes <<<"$said")
    say "travel $1 MiB | $first; pushed $bytes bytes in $(rate "$bytes" $start)"
    forget_image $image
    start=$(clock)
    stasis pull --json http://$registry_at/jobs/travel:1 $image >/dev/null
    say "the same | pulled in $(rate "$bytes" $start)"
    start=$(clock)
    run_from $image $name /bin/memcheck $1 10093
    answers=$(until_up 10093)
    say "the same | restored, answers after $(since $start): $answers"
    remove $name
    forget_image $image
    start=$(clock)
    run_from $registry_at/jobs/travel:1 $name /bin/memcheck $1 10093
    answers=$(until_up 10093)
    say "the same | restored while it arrives, answers after $(since $start): $answers"
    remove $name
    forget_image /images/.pulled
    start=$(clock)
    skopeo copy -q --src-tls-verify=false docker://$registry_at/jobs/travel:1 oci:/images/layout:1
    say "the same | skopeo copy from the registry: exit $?, $(rate "$bytes" $start)"
    rm -rf /registry/docker
    start=$(clock)
    skopeo copy -q --dest-tls-verify=false oci:/images/layout:1 docker://$registry_at/jobs/skopeo:1
    say "the same | skopeo copy to the registry: exit $?, $(rate "$bytes" $start)"
    end_registry
    rm -rf /images/layout
    settings
}
has_registry() { [ -x /usr/bin/docker-registry ] || { say "$1 | no registry is packed"; return 1; }; }
forget_image() { # DIRECTORY
    rm -rf "$1"
    forget_stores
}
run_from() { # DIRECTORY|REF ID COMMAND...: a container that begins with the image
    local extra=(--annotation io.stasis.restore="$1")
    settings $'[restore]\nat_create = "/images"\nregistry = "http://localhost:5000/jobs"'
    run "${@:2}"
}

# The data that a second replica of a model moves: it was started by itself, and has given another number of answers.
second_replica() {
    local name said first=() from=/images/replicas
    has_torch "second replica" && has_registry "second replica" || return
    start_registry
    for name in one two; do
        torch_run $name -- "exec $python /run/torch/llama.py /run/torch/$name.txt 0.02 >/run/torch/$name-output.txt 2>&1"
        until_steps $name $([ $name = one ] && echo 50 || echo 120)
        ctr t checkpoint --exit --image-path $from/$name $name || say "second replica | checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
        remove $name
        said=$(stasis push --json http://$registry_at/models/llama:$name $from/$name)
        say "replica $name of a Llama | $(number bytes <<<"$said") bytes, moved $(number moved_bytes <<<"$said"): $(stasis push --json oci:/images/layout:$name $from/$name | cut -c1-300)"
    done
    cp /run/torch/{one,two}*.txt /out/
    end_registry
    rm -rf $from /images/layout
    settings
}

# The time from `ctr run` to an answer: of a server that loads its weights and captures its graphs, and of one that its create restores.
first_answer() {
    has_torch "first answer" || return
    local start cold before warm extra=() from=/images/create
    local serve="exec $python /run/torch/serve.py /run/torch/weights.pt /run/torch/answers.txt >>/run/torch/answers-output.txt 2>&1"
    settings $'[restore]\nat_create = "'$from$'"'
    mkdir -p $from
    rm -f /run/torch/answers*.txt
    torch_run weights -- "exec $python /run/torch/serve.py /run/torch/weights.pt >>/run/torch/answers-output.txt 2>&1"
    local try
    for try in {1..600}; do [ ! -e /run/torch/weights.pt ] || break; sleep 0.1; done
    remove weights
    start=$(clock)
    torch_run cold -- "$serve"
    until_steps answers 1
    cold=$(since $start)
    until_steps answers 100
    ctr t checkpoint --exit --image-path $from/server cold || say "first answer | checkpoint failed: $(tail -n 3 /out/log.txt | cut -c1-600)"
    remove cold
    before=$(losses answers | tail -n 1)
    extra=(--annotation io.stasis.restore=server)
    start=$(clock)
    torch_run next -- "$serve"
    until_steps answers $((${before% *} + 1))
    warm=$(since $start)
    sleep 1
    say "first answer of a server (step token) through $way | cold after $cold ($(tr '\n' ' ' </run/torch/answers-output.txt | cut -c1-300)); saved at $before; from the image after $warm, until $(losses answers | tail -n 1): $(phases)"
    tail -n 2 /var/log/stasis/operations.log >>/out/operations.txt
    cp /run/torch/answers*.txt /out/
    remove next
    settings
    rm -rf $from
}
