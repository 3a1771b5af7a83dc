#!/bin/bash
# Everything that CI checks: formatting, lints, documentation, dependencies, unit tests, and the end-to-end tests in
# test hosts. STASIS_MUST_RUN names what this machine has to have (integration/src/check/requirement.rs).
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_BACKTRACE=0
# The longest test takes half of that. A test that hangs fails, and says where, before CI ends all of it.
export STASIS_HOST_LIMIT_S=${STASIS_HOST_LIMIT_S:-900}
left_out=$(mktemp)
beside=$(mktemp -d)
trap 'rm -rf "$left_out" "$beside"' EXIT
export STASIS_LEFT_OUT=$left_out
# With another selection of packages cargo has other features of dependencies, and compiles them again. Lints of the
# programs that no test runs: `make lint`.
tested=(--locked --workspace --exclude stasis-bench)

step() { printf '\n== %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

# Steps that run beside the following ones; `joined NAME` waits for one, and shows its output.
declare -A running
begin() { # NAME COMMAND...
    "${@:2}" >"$beside/$1" 2>&1 &
    running[$1]=$!
}
joined() { # NAME
    local result=0
    wait "${running[$1]}" || result=$?
    step "$1"
    cat "$beside/$1"
    return $result
}

# Compiling for COMMAND must not delay the tests: COMMAND waits until they run.
begin_beside_tests() { # NAME COMMAND...
    begin "$1" waiting "${@:2}"
}
waiting() {
    until grep -qsE '^(running |error)' "$beside/tests"; do sleep 1; done
    nice env -u RUSTC_WORKSPACE_WRAPPER "$@"
}

step "formatting"
cargo fmt --all --check
# Clippy's driver is the compiler with more lints. With it in the compiler's place the workspace is compiled once, and not
# a second time for `cargo clippy`, and `cargo test` below finds everything built.
step "programs and tests, with lints"
RUSTC_WORKSPACE_WRAPPER="$(rustc --print sysroot)/bin/clippy-driver"
# How `cargo clippy -- -D warnings` passes its arguments to the driver.
CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
cargo build "${tested[@]}" --all-targets
# Each test waits for programs most of its time: four at once leave two processors idle for a quarter of it. The node is one
# emulated machine, which uses one processor; the sweeps are a few long tests, the last of which would run alone.
step "tests (the first start of a test host builds it from Debian packages: a minute each)"
begin "tests on a node" cargo test "${tested[@]}" -- on_a_node
begin "sweeps" cargo test "${tested[@]}" -- sweep:: --test-threads 1
begin_beside_tests "fuzz targets, 20 s each" env PROFILE=dev integration/fuzz.sh 20
# The maps of the crates link to modules that are private.
begin_beside_tests "documentation" env RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
    cargo doc "${tested[@]}" --no-deps
begin "dependencies" integration/check-dependencies.sh
result=0
# Processes that a test left behind can hold the pipe, which is not waited for.
cargo test "${tested[@]}" --no-fail-fast -- --test-threads 5 --skip on_a_node --skip sweep:: \
    > >(tee "$beside/tests") 2>&1 || result=$?
joined "documentation" || result=$?
joined "dependencies" || result=$?
joined "fuzz targets, 20 s each" || result=$?
joined "tests on a node" || result=$?
joined "sweeps" || result=$?
if [ $result != 0 ]; then
    step "failures once more"
    sed -n '/^failures:$/,/^test result/p' "$beside"/* | cut -c1-2000
fi
step "$([ $result = 0 ] && echo passed || echo FAILED); left out on this machine: $(wc -l <"$left_out")"
sort "$left_out"
exit $result
