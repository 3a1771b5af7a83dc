# PyTorch, from the machine's own installation; sourced by inside.sh.

torch_run() { # ID ENVIRONMENT... -- COMMAND: a container with the machine's Python
    local id=$1 environment=() binds=() directory
    shift
    while [ "$1" != -- ]; do environment+=(--env "$1"); shift; done
    for directory in usr lib lib64 opt; do
        binds+=(--mount "type=bind,src=/machine/$directory,dst=/$directory,options=bind:ro")
    done
    binds=("${binds[@]/\/machine\/lib,/\/machine\/usr\/lib,}")
    binds=("${binds[@]/\/machine\/lib64,/\/machine\/usr\/lib64,}")
    mkdir -p /run/torch
    cp /work/*.py /run/torch/
    ctr run -d "${network[@]}" "${through[@]}" "${extra[@]}" \
        $(printf -- '--device /dev/nvidia%s ' ${gpus:-0}) --device /dev/nvidiactl --device /dev/nvidia-uvm \
        "${binds[@]}" --mount "type=bind,src=$nvidia,dst=$nvidia,options=rbind:ro" --mount type=bind,src=/run/torch,dst=/run/torch,options=rbind:rw \
        --env LD_LIBRARY_PATH=$nvidia/lib64 --env OMP_NUM_THREADS=2 --env HOME=/root --env USER=root --env PATH=/usr/bin:/bin \
        "${environment[@]}" localhost/stasis-test:latest "$id" /bin/sh -c "$2" </dev/null
}
grow_shm() { # ID: NCCL shares memory there, more than the usual 64 MiB; ctr has no option for its size
    # In the pid namespace, too: mount reads /proc/mounts, which is a link to a process.
    /bin/busybox nsenter -t "$(pids_of "$1" | head -n 1)" -m -p /bin/busybox mount -o remount,size=4g /dev/shm
}
has_torch() { [ -L /machine/opt/torch/.venv/bin/python3 ] || { say "$1 | no PyTorch here"; return 1; }; }
python=/opt/torch/.venv/bin/python3
losses() { cat /run/torch/$1.txt 2>/dev/null; }
until_steps() { # FILE COUNT
    local try
    for try in {1..800}; do [ "$(losses $1 | wc -l)" -ge $2 ] && return; sleep 0.05; done
}

# Counts the lines that are in one file only. busybox's diff cannot.
differing() { sort "$1" "$2" | uniq -u | wc -l; }

torch() {
    has_torch PyTorch || return
    torch_run torch -- 'exec /opt/torch/.venv/bin/python3 /run/torch/train.py >>/run/torch/output.txt 2>&1'
    local try
    for try in {1..150}; do [ -s /run/torch/loss.txt ] && [ $(wc -l </run/torch/loss.txt) -gt 20 ] && break; sleep 0.3; done
    local before=$(tail -n 1 /run/torch/loss.txt)
    ctr c checkpoint --rw --image --task torch torch:1
    tail -n 2 /var/log/stasis/operations.log >>/out/operations.txt
    sleep 2
    local went_on=$(tail -n 1 /run/torch/loss.txt)
    remove torch
    local killed=$(tail -n 1 /run/torch/loss.txt)
    ctr c restore --rw --live torch torch:1
    tail -n 1 /var/log/stasis/operations.log >>/out/operations.txt
    sleep 3
    local restored=$(tail -n 1 /run/torch/loss.txt)
    say "PyTorch AdamW training (step loss) through $way | before: $before; went on after the checkpoint: $went_on; killed at: $killed; restored, 3 s later: $restored"
    cp /run/torch/*.txt /out/
    forget torch
}

# No container of ours: what the driver does with processes that share a GPU.
time_slices() {
    has_torch "time slices" || return
    torch_run slices -- "exec $python /run/torch/time_slices.py >/run/torch/slices.txt 2>&1"
    local try
    for try in {1..90}; do sleep 1; [ "$(wc -l </run/torch/slices.txt)" -lt 3 ] || break; done
    while read -r line; do say "time slices | $line"; done </run/torch/slices.txt
    say "time slices | $(/bin/busybox dmesg | grep -ci 'xid.*109') times Xid 109"
    remove slices
}

dataloader() {
    has_torch DataLoader || return
    local before after killed restored
    torch_run loader -- "exec $python /run/torch/loader.py >>/run/torch/loader-output.txt 2>&1"
    until_steps loader 20
    local devices=$(for pid in $(pids_of loader); do ls -l /proc/$pid/fd; done | grep -c /dev/nvidia)
    before=$(losses loader | tail -n 1)
    ctr c checkpoint --rw --image --task loader loader:1 || say "DataLoader | checkpoint failed: $(tail -n 3 /out/log.txt)"
    say "DataLoader | $(notes checkpoint)"
    sleep 1
    after=$(losses loader | tail -n 1)
    remove loader
    killed=$(losses loader | tail -n 1)
    ctr c restore --rw --live loader loader:1
    sleep 3
    restored=$(losses loader | tail -n 1)
    say "DataLoader training, 4 forked workers (step loss) through $way | $devices descriptors of NVIDIA devices; before $before; went on $after; killed at $killed; restored, 3 s later: $restored"
    cp /run/torch/loader*.txt /out/
    forget loader
}

# A job that is preempted again and again: it is saved at each stop, and the next container of its key goes on. Its
# workers hand batches over in /dev/shm, and by sockets below TMPDIR, which the next container has to have. No step is made
# twice, none is left out, and each is that of a whole run.
preempted() { # TIMES
    has_torch "a job that is preempted" || return
    local round steps=0 try extra=() differing seconds=()
    settings $'[restore]\nat_create = "/images/kept"\nkeep_at_stop = 2'
    extra=(--annotation io.stasis.checkpoint=on-stop --annotation io.stasis.checkpoint.key=loader --annotation io.stasis.restore=latest:loader)
    for ((round = 1; round <= $1 + 1; round++)); do
        torch_run job$round TMPDIR=/run/torch/tmp -- "mkdir -p /run/torch/tmp; exec $python /run/torch/loader.py /run/torch/preempted.txt 0.02 >>/run/torch/preempted-output.txt 2>&1"
        until_steps preempted $((steps + 10))
        [ $round -le $1 ] || break
        local start=$(clock)
        ctr t kill -s SIGTERM job$round
        for try in {1..600}; do ctr t ls | grep -q "^job$round .*STOPPED" && break; sleep 0.05; done
        seconds+=($(since $start | tr -d ' s'))
        steps=$(losses preempted | wc -l)
        remove job$round
    done
    remove job$round
    steps=$(losses preempted | wc -l)
    extra=()
    torch_run unbroken -- "exec $python /run/torch/loader.py /run/torch/unbroken.txt 0 >/run/torch/unbroken-output.txt 2>&1"
    until_steps unbroken $steps
    remove unbroken
    tail -n $((2 * $1)) /var/log/stasis/operations.log >>/out/operations.txt
    differing=$(differing <(losses preempted) <(losses unbroken | head -n $steps))
    say "PyTorch with 4 DataLoader workers through $way, preempted $1 times | $(losses preempted | wc -l) steps, until $(losses preempted | tail -n 1); from those of a whole run differ: $differing; cold starts: $(grep -c 'started cold' /var/log/stasis/operations.log); images kept: $(ls -d /images/kept/loader/*-stop | wc -l); seconds from the signal to the end: $(printf '%s\n' "${seconds[@]}" | sort -n | sed -n '1p;$p' | tr '\n' ' ')"
    cp /run/torch/{preempted,unbroken}*.txt /out/
    settings
    rm -rf /images/kept
}

# The time from `ctr run` to a token: of a Llama that starts, and of one that its create restores from an image.
first_token() {
    has_torch "first token" || return
    local start cold before warm extra=() from=/images/create
    local generate="exec $python /run/torch/llama.py /run/torch/first.txt 0.02 >/run/torch/first-output.txt 2>&1"
    settings $'[restore]\nat_create = "'$from$'"'
    mkdir -p $from
    start=$(clock)
    torch_run cold -- "$generate"
    until_steps first 1
    cold=$(since $start)
    until_steps first 100
    ctr t checkpoint --exit --image-path $from/llama cold || say "first token | checkpoint failed: $(tail -n 3 /out/log.txt)"
    remove cold
    before=$(losses first | tail -n 1)
    extra=(--annotation io.stasis.restore=llama)
    start=$(clock)
    torch_run next -- "$generate"
    until_steps first $((${before% *} + 1))
    warm=$(since $start)
    sleep 1
    say "first token of a Llama (step token) through $way | started after $cold; saved at $before; from the image after $warm, until $(losses first | tail -n 1): $(phases)"
    tail -n 2 /var/log/stasis/operations.log >>/out/operations.txt
    cp /run/torch/first*.txt /out/
    remove next
    settings
    rm -rf $from
}

generation() { # the tokens after a restore are those that it would have made
    has_torch "a Llama that generates" || return
    local steps=600 first killed differing
    torch_run whole -- "exec $python /run/torch/llama.py /run/torch/whole.txt 0 >/run/torch/llama-output.txt 2>&1"
    until_steps whole $steps
    remove whole
    torch_run parts -- "exec $python /run/torch/llama.py /run/torch/parts.txt 0.02 >>/run/torch/llama-output.txt 2>&1"
    until_steps parts 100
    first=$(losses parts | tail -n 1)
    ctr c checkpoint --rw --image --task parts parts:1 || say "generation | checkpoint failed: $(tail -n 3 /out/log.txt)"
    sleep 2
    remove parts
    killed=$(losses parts | tail -n 1)
    ctr c restore --rw --live parts parts:1 || say "generation | restore failed: $(tail -n 3 /out/log.txt)"
    until_steps parts $((steps + 200))
    # Made twice, by the job that went on and by the restored one, tokens must be the same, too.
    differing=$(differing <(losses parts | sort -n -u | head -n $steps) <(losses whole | head -n $steps))
    say "Llama, a CUDA graph that samples (step token) through $way | checkpointed after $first; killed at $killed; restored, until $(losses parts | tail -n 1); of $steps tokens, from those of a whole run differ: $differing; $(losses whole | cut -d' ' -f2 | sort -u | wc -l) different tokens"
    cp /run/torch/{whole,parts,llama-output}.txt /out/
    forget parts
}
