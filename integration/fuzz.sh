#!/bin/bash
# Fuzzes every reader of data that others write (fuzz/targets), SECONDS each, two at a time, with libFuzzer.
# A crash leaves its input below target/fuzz/artifacts and fails the run.
# PROFILE=dev takes what is compiled for the tests; without optimization a target reads a tenth of the inputs.
# usage: integration/fuzz.sh SECONDS [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
here=$PWD/target/fuzz
export RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/instrumented-rustc
profile=${PROFILE:-fuzz}
cargo build --locked -p stasis-fuzz --features instrumented --profile "$profile"
programs=target/${profile/dev/debug}

fuzz() {
    local name=$1 log=$here/$1.log
    local found=$here/corpus/$name crashes=$here/artifacts/$name
    mkdir -p "$found" "$crashes"
    if "$programs/$name" "$found" "fuzz/seeds/$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 -artifact_prefix="$crashes/" >"$log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no crash"
    else
        echo "$name: FAILED, $log"
        tail -n 30 "$log"
        return 1
    fi
}
export -f fuzz
export here programs seconds
targets=("$@")
[ $# -gt 0 ] || targets=($(cd fuzz/targets && ls | sed 's/\.rs$//'))
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'fuzz {}'
