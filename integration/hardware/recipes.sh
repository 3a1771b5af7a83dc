# The recipes of docs/recipes, with the modules of the machine's Python; sourced by inside.sh.

has_module() { # NAME
    has_torch "$1" || return
    [ -d "$(echo /machine/opt/torch/.venv/lib/python3.*/site-packages)/$1" ] || { say "$1 | is not installed here"; return 1; }
}

# One job, checkpointed while it goes on, killed and restored: what it writes twice has to be the same.
recipe() { # NAME PROGRAM ENVIRONMENT...
    local name=$1 program=$2 before after killed restored differing
    shift 2
    rm -f /run/torch/$name.txt
    torch_run $name "$@" -- "exec $python /run/torch/$program /run/torch/$name.txt >>/run/torch/$name-output.txt 2>&1"
    until_steps $name 20
    [ -n "$(losses $name)" ] || { say "$name | it made no step: $(grep Error /run/torch/$name-output.txt | tail -n 1)"; remove $name; return; }
    until_steps $name 20
    before=$(losses $name | tail -n 1)
    stasis check $name >/out/$name-check.txt 2>&1
    ctr c checkpoint --rw --image --task $name $name:1 || say "$name | checkpoint failed: $(tail -n 3 /out/log.txt)"
    tail -n 2 /var/log/stasis/operations.log >>/out/operations.txt
    sleep 2
    after=$(losses $name | tail -n 1)
    remove $name
    killed=$(losses $name | tail -n 1)
    ctr c restore --rw --live $name $name:1 || say "$name | restore failed: $(tail -n 3 /out/log.txt)"
    sleep 4
    restored=$(losses $name | tail -n 1)
    differing=$(losses $name | sort -u | cut -d' ' -f1 | uniq -d | wc -l)
    say "$name (step result) through $way | before $before; went on $after; killed at $killed; restored, 4 s later: $restored; of $(losses $name | cut -d' ' -f1 | sort | uniq -d | wc -l) made twice differ $differing; $(tail -n 1 /run/torch/$name-output.txt)"
    cp /run/torch/$name*.txt /out/
    forget $name
}

# JAX's compiler looks for ptxas and libdevice in /usr/local/cuda despite XLA_FLAGS: a link by way of /etc/alternatives.
jax() {
    local extra=(--mount type=bind,src=/machine/etc/alternatives,dst=/etc/alternatives,options=rbind:ro)
    has_module jax && recipe jax jax_train.py XLA_PYTHON_CLIENT_PREALLOCATE=false CUDA_VISIBLE_DEVICES=0 \
        PATH=/usr/local/cuda/bin:/usr/bin:/bin
}
transformers() { has_module transformers && recipe transformers generate.py CUDA_VISIBLE_DEVICES=0 HF_HUB_OFFLINE=1; }
