#!/bin/bash
# Packs all that a run on a GPU machine without a network needs: pack.sh DIRECTORY
#
# The root file system of a sid test host, stripped to the programs that are used and their libraries; runtime and shim; the
# workloads, linked against the stand-in and run on the real driver; the contract test; a test image.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$here/../..
out=$(mkdir -p "$1" && cd "$1" && pwd)

host=${STASIS_HOST_SID:-$(ls -d "${STASIS_CACHE:-/var/cache/stasis}"/hosts/sid-*/ 2>/dev/null | head -n 1)}
[ -d "$host" ] || { echo "no sid test host: run the tests first" >&2; exit 1; }
cd "$repository"
cargo build --locked --release -p stasis -p stasis-runtime -p containerd-shim-stasis -p stasis-criu-plugin
cargo build --locked -p stasis-integration --bin test-host
cargo build --locked -p stasis-bench --bin gpu-path
contract=$(cargo test --locked --no-run -p stasis-integration --test contract --message-format=json 2>/dev/null |
    grep -o '"executable":"[^"]*contract-[^"]*"' | tail -n 1 | cut -d'"' -f4)
# The test compiles the workloads before it runs.
"$contract" --quiet >/dev/null
native=target/debug/native

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{usr/{bin,sbin,lib,lib64,local/{bin,nvidia},libexec},etc,proc,sys,dev,run,tmp,root,machine,images} \
    "$root"/var/{lib/containerd,lib/containers,log,tmp}

for directory in bin sbin lib lib64; do ln -s usr/$directory "$root/$directory"; done

programs=(/usr/sbin/criu /usr/bin/containerd /usr/bin/containerd-shim-runc-v2 /usr/bin/ctr /usr/sbin/runc /usr/bin/crun
    /usr/bin/bash /usr/bin/tar /usr/bin/gzip /usr/bin/script /usr/bin/podman /usr/bin/conmon /usr/libexec/podman/rootlessport
    /usr/sbin/iptables-restore /usr/sbin/ip /usr/bin/setpriv /usr/bin/prlimit /usr/bin/docker-registry /usr/bin/skopeo)
for program in "${programs[@]}"; do
    # Some of them are links in one release and files in another.
    [ -e "$host$program" ] || continue
    mkdir -p "$root$(dirname "$program")"
    cp -L "$host$program" "$root$program"
    for library in $(chroot "$host" ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | sort -u); do
        mkdir -p "$root$(dirname "$library")"
        cp -nL "$host$library" "$root$library" 2>/dev/null || true
    done
done
# Libraries that libcuda and CRIU open at run time.
for name in libdl.so.2 libpthread.so.0 librt.so.1 libm.so.6 libgcc_s.so.1 libcriu.so.2 libseccomp.so.2 libsystemd.so.0; do
    library=$(find "$host/usr/lib/x86_64-linux-gnu" -maxdepth 1 -name "$name*" | head -n 1)
    [ -z "$library" ] || cp -L "$library" "$root/usr/lib/x86_64-linux-gnu/$name" 2>/dev/null ||
        { mkdir -p "$root/usr/lib/x86_64-linux-gnu" && cp -L "$library" "$root/usr/lib/x86_64-linux-gnu/$name"; }
done
cp /bin/busybox "$root/usr/bin/busybox"
cp -r "$host/etc/containers" "$root/etc/" 2>/dev/null || true
cp -r "$here/../hosts/etc/." "$root/etc/"
strip -o "$root/usr/local/bin/gpu-path" target/debug/gpu-path
cp target/release/{stasis,stasis-runtime,containerd-shim-stasis-v2} "$root/usr/local/bin/"
ln -s stasis "$root/usr/local/bin/cuda-checkpoint"
mkdir -p "$root/usr/local/lib/stasis" && cp target/release/libstasis_memory.so "$root/usr/local/lib/stasis/"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"

STASIS_PROGRAMS=$(printf '%s:' $native/bin/*) target/debug/test-host sid v2 cat /root/image.tar >"$root/images/test.tar"
mkdir -p "$root/work/native" && strip -o "$root/work/contract" "$contract"
cp -r $native/{bin,lib64} "$root/work/native/"
tar -C "$root" -c . | xz -T0 -4 >"$out/root.tar.xz"
ls -l "$out/root.tar.xz"
