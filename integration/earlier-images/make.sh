#!/bin/bash
# Makes a stored image of an earlier version: make.sh VERSION PROGRAMS
#
# PROGRAMS has that version's stasis-runtime, and its libstasis_memory.so if it had one. Run it where `cargo build --workspace` was run, with
# musl-tools installed. It writes VERSION.tar.gz, and the container's bundle (bundle.tar.gz) if it is not there.
set -euo pipefail
version=$1 programs=$(realpath "$2")
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
target=../../target/debug

pack() { tar --sort=name --owner=0 --group=0 --mtime=@0 -C "$1" -cf - . | gzip -9n >"$2"; }

# One static program, the stand-in's half of the driver included: the image maps no other file. By its name the engine takes it for a process
# that has mapped libcuda, as it has.
compile() {
    for part in gpu devices memory stream driver_api; do
        musl-gcc -std=gnu17 -Os -c -Dgpu_count=standin_gpu_count -o "$scratch/$part.o" "../standin/$part.c"
    done
    musl-gcc -std=gnu17 -Os -static -s -I../workloads -o "$1" pages.c ../workloads/{serve,gpu}.c "$scratch"/*.o -pthread
}

make_bundle() {
    mkdir -p "$scratch/bundle/rootfs"/{bin,dev,proc,sys,tmp}
    compile "$scratch/bundle/rootfs/bin/libcuda.so.pages"
    "$target/test-host" trixie v2 bash -c 'cd /tmp && runc spec && cat config.json' >"$scratch/spec.json"
    python3 - "$scratch" <<'END'
import json, sys
spec = json.load(open(sys.argv[1] + "/spec.json"))
# CRIU makes a directory there while it restores.
spec["root"]["readonly"] = False
spec["process"].update(terminal=False, args=["/bin/libcuda.so.pages", "10000"])
spec["process"]["env"].append("STASIS_TAG=pages")
spec["linux"]["namespaces"] = [each for each in spec["linux"]["namespaces"] if each["type"] != "network"]
# Those of c_build::NODES.
nodes = {"/dev/nvidiactl": 6, "/dev/nvidia-uvm": 7, "/dev/nvidia0": 5}
spec["linux"]["devices"] = [
    {"path": path, "type": "b", "major": 7, "minor": minor, "fileMode": 0o666} for path, minor in nodes.items()]
spec["linux"]["resources"] = {"devices": [{"allow": True, "access": "rwm"}]}
json.dump(spec, open(sys.argv[1] + "/bundle/config.json", "w"), indent=1)
END
    pack "$scratch/bundle" bundle.tar.gz
}

[ -e bundle.tar.gz ] || make_bundle

mkdir -p "$scratch/brought/lib64"
cp "$programs"/* bundle.tar.gz "$scratch/brought"
cp "$target"/native/lib64/lib*.so.1 "$scratch/brought/lib64"
tar -C "$scratch/brought" -cf - . | "$target/test-host" trixie v2 bash -euc '
    exec 3>&1 >&2
    mkdir -p /brought /bundle /image /run/stasis-standin /etc/stasis /usr/local/lib/stasis
    tar -C /brought -xf -
    tar -C /bundle -xzf /brought/bundle.tar.gz
    mknod /dev/nvidiactl b 7 6; mknod /dev/nvidia-uvm b 7 7; mknod /dev/nvidia0 b 7 5
    cp /brought/stasis-runtime /usr/local/bin/
    [ ! -e /brought/libstasis_memory.so ] || cp /brought/libstasis_memory.so /usr/local/lib/stasis/
    cat >/etc/stasis/stasis.toml <<END
runtime.path = "runc"
driver.libcuda = "/brought/lib64/libcuda.so.1"
driver.nvml = "/brought/lib64/libnvidia-ml.so.1"
gpu_checkpoint.huge_pages = false
END
    [ ! -e /brought/libstasis_memory.so ] || echo "bulk_memory.minimum_mib = 1" >>/etc/stasis/stasis.toml
    stasis-runtime run --detach --bundle /bundle pages </dev/null >/dev/null 2>&1
    # Without waiting for an answer to what was sent before anybody listened.
    ask() { exec 4<>/dev/udp/127.0.0.1/10000; echo x >&4; timeout 5 head -n 1 <&4; }
    until [ "$(ask 2>/dev/null)" = "ok 2" ]; do :; done
    stasis-runtime checkpoint --image-path /image --work-path /tmp pages
    ls -la /image
    tar -C /image -c . >&3
' >"$scratch/image.tar"
mkdir "$scratch/image"
tar -C "$scratch/image" -xf "$scratch/image.tar"
pack "$scratch/image" "$version.tar.gz"
ls -l bundle.tar.gz "$version.tar.gz"
