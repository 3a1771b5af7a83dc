# Installs what the machine brings along on a node, as `make install` and the hosts of the other tests have it.
set -euo pipefail
machine=/machine
install -D -m 755 -t /usr/local/bin $machine/{stasis-runtime,stasis,containerd-shim-stasis-v2}
install -D -m 755 -t /usr/local/lib/stasis $machine/libstasis_memory.so
ln -s stasis /usr/local/bin/cuda-checkpoint
units=/usr/local/lib/systemd/system
install -D -m 644 -t $units $machine/stasis-recover.service
mkdir -p $units/multi-user.target.wants
ln -s ../stasis-recover.service $units/multi-user.target.wants/
install -D -m 755 -t /usr/local/nvidia/lib64 $machine/lib64/*
mkdir -p /etc/stasis
cat >/etc/stasis/stasis.toml <<'END'
driver.libcuda = "/usr/local/nvidia/lib64/libcuda.so.1"
driver.nvml = "/usr/local/nvidia/lib64/libnvidia-ml.so.1"
END
# The engine and its cgroups are as Debian has them; podman is to accept the runtime's name.
mkdir -p /etc/containers/containers.conf.d
cat >/etc/containers/containers.conf.d/stasis.conf <<'END'
[engine]
runtime_supports_json = ["crun", "runc", "stasis-runtime"]
END
mkdir -p /etc/containers
[ -e /etc/containers/policy.json ] || echo '{"default":[{"type":"insecureAcceptAnything"}]}' >/etc/containers/policy.json
# Directories and nodes below /run and /dev, again after each boot.
cat >/etc/tmpfiles.d/standin.conf <<'END'
d /run/stasis-standin 0755
END
sed 's/^/b /' $machine/nodes >>/etc/tmpfiles.d/standin.conf
echo loop >/etc/modules-load.d/loop.conf
modprobe loop
systemd-tmpfiles --create /etc/tmpfiles.d/standin.conf
podman load -q -i $machine/image.tar
sync
