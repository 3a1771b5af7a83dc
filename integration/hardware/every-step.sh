#!/bin/bash
# A fault at every step of every operation (integration/tests/campaign), many at once: [JOBS=30] [SECONDS_EACH=500]
# every-step.sh, in the root file system that campaign.sh makes. Ends with how many fired of each victim, and what came
# of it; failures are in $OUT/failures.txt.
set -uo pipefail
logs=$OUT/every-step
mkdir -p "$logs"
# TEST VICTIM OPERATION PARTS: a part is a process, and takes every PARTS-th step.
list() {
    while read -r test victim operations; do
        for each in ${operations//,/ }; do
            parts=${each#*:}
            for part in $(seq "$parts"); do echo "$test|${victim//_/ }|$(name "${each%:*}")|$part/$parts"; done
        done
    done <<'LIST'
engine engine_killed leave:4,end:3,paused:3,restore:3,resume:2,suspend:1,wake:1
keeper engine,_then_keeper_killed leave:8,restore:5,suspend:3
keeper keeper_killed leave:4,restore:3,suspend:1
keeper engine,_keeper,_then_recover_killed leave:6,restore:3
keeper caller_killed leave:4,restore:3
criu criu_killed leave:3,end:3,restore:3
criu runc_killed leave:1,end:1,restore:1
disk ENOSPC_for_engine leave:1,end:1,paused:1,restore:1,resume:1,suspend:1,wake:1
disk EIO_for_engine leave:1,end:1,restore:1
disk ENOSPC_for_criu leave:2
disk EIO_for_criu end:2
LIST
}
name() {
    case $1 in
    leave) echo "checkpoint --leave-running" ;;
    end) echo "checkpoint" ;;
    paused) echo "checkpoint of a paused container" ;;
    wake) echo "end of a suspend" ;;
    *) echo "$1" ;;
    esac
}
one() {
    IFS='|' read -r test victim operation part <<<"$1"
    log=$logs/$(tr ' /' '_-' <<<"$1").log
    STASIS_STEPS=$part STASIS_VERB=$operation STASIS_VICTIM=$victim timeout "$SECONDS_EACH" \
        /work/every-step "$test" --nocapture --test-threads 1 >"$log" 2>&1
    echo "$1: ended with $?"
}
export -f one
export logs SECONDS_EACH=${SECONDS_EACH:-500}
list | xargs -P "${JOBS:-30}" -d '\n' -n 1 bash -c 'one "$1"' one
grep -h '^FAILED' "$logs"/*.log >"$OUT/failures.txt"
# VERB, VICTIM, NUMBER: PHASE: CALL: END
sed -nE 's/^(test .* \.\.\. )?.*, ([a-zA-Z, ]*), [0-9]+: [^:]+: .*: ([a-z, ]+)$/\2 | \3/p' "$logs"/*.log | sort | uniq -c
