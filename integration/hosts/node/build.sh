#!/bin/bash
# Makes the disk and the kernel of a node: build.sh ROOT DIRECTORY
#
# ROOT is the root file system of a test host, which stays as it is. The node has systemd besides, and Debian 12's kernel.
set -euo pipefail
base=$1 result=$2
mirror=${STASIS_MIRROR:-http://deb.debian.org/debian}

if [ -z "${STASIS_BUILD_NAMESPACE:-}" ]; then
    STASIS_BUILD_NAMESPACE=1 exec unshare --mount --propagation private \
        bash -c "$BASH_EXECUTION_STRING" build "$base" "$result"
fi

root=$result/root
mkdir -p "$result"
cp -a "$base" "$root"
mount -t proc proc "$root/proc"
inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
echo "deb $mirror bookworm main" >"$root/etc/apt/sources.list.d/bookworm.list"
inside apt-get -q -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 update
inside apt-get -q -y -o Acquire::Retries=3 install --no-install-recommends \
    dbus kmod nfs-kernel-server qemu-guest-agent systemd-sysv udev

# The kernel's package is unpacked and not installed: what it would have made, an initial file system and a boot loader's
# entry, the node does without.
kernel=$(inside apt-cache show linux-image-amd64/bookworm | sed -n 's/^Depends: \(linux-image-[^ ,]*\).*/\1/p')
inside sh -c "cd /tmp && apt-get -q -o APT::Sandbox::User=root download $kernel && dpkg-deb -x $kernel*.deb / && rm $kernel*.deb"
release=${kernel#linux-image-}
inside depmod "$release"
mv "$root/boot/vmlinuz-$release" "$result/kernel"
inside apt-get -q clean
rm -rf "$root"/var/lib/apt/lists/* "$root/usr/sbin/policy-rc.d" "$root"/boot/*

# Kernel modules until the disk is there; modprobe says which, in their order.
initial=$result/initial
mkdir -p "$initial"/{bin,dev,modules,proc,root,sys}
number=100
inside sh -c "for name in virtio_pci virtio_blk ext4; do modprobe -S $release --show-depends \$name; done" |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
    cp "$root$module" "$initial/modules/$((number++))-${module##*/}"
done
cp /bin/busybox "$initial/bin/"
cat >"$initial/init" <<'END'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*; do /bin/busybox insmod "$module"; done
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
END
chmod 755 "$initial/init"
(cd "$initial" && find . | /bin/busybox cpio -o -H newc) | gzip -1 >"$result/initrd"

# The tests' own files are on the machine's file system.
cat >"$root/etc/fstab" <<'END'
/dev/vda / ext4 defaults 0 1
machine /machine 9p trans=virtio,version=9p2000.L,ro 0 0
END
mkdir -p "$root/machine"
echo node >"$root/etc/hostname"
# There are no logins and no timers, and podman is the engine.
inside systemctl mask docker.service docker.socket containerd.service getty.target console-getty.service systemd-logind.service systemd-timesyncd.service \
    nfs-blkmap.service nfs-server.service rpcbind.service rpcbind.socket rpc-statd.service nfs-client.target nfs-idmapd.service nfsdcld.service \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
umount "$root/proc"
/sbin/mke2fs -q -t ext4 -d "$root" "$result/disk" 6G
rm -rf "$root" "$initial"
