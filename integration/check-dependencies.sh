#!/bin/bash
# What may be depended on (deny.toml): licences, sources and banned crates; known vulnerabilities where their database
# can be reached. CI installs cargo-deny, people are told how to.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
if ! command -v cargo-deny >/dev/null; then
    if [ -z "${CI:-}" ]; then
        echo "NOT CHECKED: cargo-deny is missing; cargo install --locked cargo-deny@$version --no-default-features"
        exit 0
    fi
    # It runs for seconds, so it need not be optimized, which takes most of the compiler's time.
    CARGO_PROFILE_DEV_DEBUG=false cargo install --debug --locked "cargo-deny@$version" --no-default-features
fi
cargo deny --locked check bans licenses sources
if timeout 60 cargo deny fetch db 2>/dev/null; then
    cargo deny --locked check advisories
else
    echo "NOT CHECKED: advisories; their database cannot be reached from here"
fi
