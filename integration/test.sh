#!/bin/bash
# Everything that CI checks: formatting, lints, unit tests, and the end-to-end tests in test hosts.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_BACKTRACE=0
cargo fmt --all --check
cargo clippy --quiet --workspace --all-targets -- -D warnings
# The end-to-end tests run the programs, and CRIU's plugin, as they are installed.
cargo build --quiet --workspace
cargo test --quiet --workspace --no-fail-fast -- --test-threads 2
