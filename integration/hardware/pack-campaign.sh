#!/bin/bash
# Packs all that random faults need on a machine without a network, a compiler and debootstrap: pack-campaign.sh DIRECTORY
#
# The root file system of a sid test host without what no sequence uses; the campaign, the programs that it tries, and what
# gcc has made for it. campaign.sh runs it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$here/../.."

host=${STASIS_HOST_SID:-$(ls -d "${STASIS_CACHE:-/var/cache/stasis}"/hosts/sid-*/ 2>/dev/null | head -n 1)}
[ -d "$host" ] || { echo "no sid test host: run the tests first" >&2; exit 1; }
selection=(--locked --workspace --exclude stasis-bench --features stasis-integration/programs)
cargo build "${selection[@]}"
# test-host has gcc compile the programs of a test image.
target/debug/test-host sid v2 true

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strip -o "$work/campaign" target/debug/campaign
steps=$(cargo test "${selection[@]}" --no-run 2>&1 | sed -n 's/.*tests\/campaign\/main.rs (\(.*\))/\1/p')
strip -o "$work/every-step" "$steps"
cp "$here/every-step.sh" "$work/"
for program in stasis stasis-runtime libstasis_memory.so; do
    strip -o "$work/$program" target/debug/$program
done
cp -r target/debug/native "$work/"
# Programs of the machine that tests run on, which hosts lack.
cp /bin/busybox /usr/sbin/pivot_root "$work/"
tar -C "$work" -c . | xz -T0 -3 >"$out/work.tar.xz"

# Packing takes minutes, and gives the same as long as the host is the same.
if [ ! -e "$out/root.tar.xz" ]; then
    leave_out=(usr/{share,libexec,include,games} usr/lib/{podman,containerd,cni,systemd,apt,gcc} usr/lib/x86_64-linux-gnu/{gconv,perl-base,systemd}
        usr/bin/{podman,docker,perl\*,apt\*,dpkg\*,systemd\*,openssl,gpg\*,containerd-\*,sqv}
        usr/sbin/{dockerd,docker-proxy,recvtty,pidfd-kill,sd-helper,remap-rootfs,seccompagent,fs-idmap} var/lib/{apt,dpkg} var/cache var/log)
    tar -C "$host" --anchored "${leave_out[@]/#/--exclude=./}" -c . | xz -T0 -3 >"$out/root.new"
    mv "$out/root.new" "$out/root.tar.xz"
fi
cp "$here/campaign.sh" "$out/"
ls -l "$out"
