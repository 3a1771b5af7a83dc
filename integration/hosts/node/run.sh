#!/bin/bash
# Runs a node until standard input closes, also by the death of the test that started it: run.sh QEMU_ARGUMENT...
set -euo pipefail
qemu-system-x86_64 "$@" </dev/null &
node=$!
while read -r _; do :; done
# As if its power failed.
kill -KILL "$node"
wait "$node" || true
