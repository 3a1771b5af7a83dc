#!/bin/bash
# Everything that CI checks: formatting, lints, documentation, dependencies, unit tests, and the end-to-end tests in
# test hosts. STASIS_MUST_RUN names what this machine has to have (integration/src/check/requirement.rs).
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_BACKTRACE=0
left_out=$(mktemp)
on_node=$(mktemp)
trap 'rm -f "$left_out" "$on_node"' EXIT
export STASIS_LEFT_OUT=$left_out

step() { printf '\n== %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

step "formatting"
cargo fmt --all --check
step "lints"
cargo clippy --locked --workspace --all-targets -- -D warnings
# The maps of the crates link to modules that are private.
step "documentation"
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --locked --no-deps --workspace
step "dependencies"
integration/check-dependencies.sh
# The end-to-end tests run the programs, and CRIU's plugin, as they are installed.
step "programs"
cargo build --locked --workspace
step "fuzz targets, 20 s each"
integration/fuzz.sh 20
step "tests (the first start of a test host builds it from Debian packages: a minute each)"
cargo test --locked --workspace --no-run
# The node is one emulated machine, which uses one processor and waits most of its time: beside the others. Each test
# waits for programs most of its time as well: three at once are faster on two processors than two.
cargo test --locked --workspace --test node >"$on_node" 2>&1 &
node=$!
result=0
cargo test --locked --workspace --no-fail-fast -- --test-threads 3 --skip on_a_node || result=$?
wait "$node" || result=$?
cat "$on_node"
step "$([ $result = 0 ] && echo passed || echo FAILED); left out on this machine: $(wc -l <"$left_out")"
sort "$left_out"
exit $result
