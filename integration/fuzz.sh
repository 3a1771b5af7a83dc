#!/bin/bash
# Fuzzes every reader of what others write (fuzz/targets), SECONDS each, two at a time, with libFuzzer.
# A crash leaves its input below target/fuzz/artifacts and fails the run.
# usage: integration/fuzz.sh SECONDS [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
here=$PWD/target/fuzz
# What `cargo fuzz --sanitizer none` has the compiler do; no nightly compiler is needed for it.
flags=(--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1)
for each in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$each")
done
export RUSTFLAGS="${flags[*]}"
# With --target the flags do not reach build scripts, which libFuzzer's main is not linked to.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --locked --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$here"

fuzz() {
    local name=$1 log=$here/$1.log
    local found=$here/corpus/$name crashes=$here/artifacts/$name
    mkdir -p "$found" "$crashes"
    if "$here/$host/release/$name" "$found" "fuzz/seeds/$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 -artifact_prefix="$crashes/" >"$log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no crash"
    else
        echo "$name: FAILED, $log"
        tail -n 30 "$log"
        return 1
    fi
}
export -f fuzz
export here host seconds
targets=("$@")
[ $# -gt 0 ] || targets=($(cd fuzz/targets && ls | sed 's/\.rs$//'))
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'fuzz {}'
