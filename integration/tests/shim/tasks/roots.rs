//! Root file systems of all kinds that containerd's snapshotters ask for.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{Containerd, INIT, Mount, Streams, process};
use stasis_integration::client::shim::{Shim, in_host};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    files_belong_to_the_ids_of_a_user_namespace,
    bind_mount_is_mapped,
    many_layers_are_mounted,
    what_is_not_mounted_is_refused,
    image_file_is_mounted_on_a_loop_device,
]: trixie, sid_v2);

const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/default";
/// Makes the image's files, where they may be mounted with other ids.
const FILES: &str = r"
mountpoint -q /opt/roots && exit
mkdir -p /opt/roots /opt/image
mount -t tmpfs roots /opt/roots
ctr image mount localhost/stasis-test:latest /opt/image >/dev/null
mkdir -p /opt/roots/image /opt/roots/more /opt/roots/upper /opt/roots/work
cp -a /opt/image/. /opt/roots/image
ctr image unmount /opt/image >/dev/null
mkdir -p /opt/roots/image/proc /opt/roots/image/dev /opt/roots/image/sys /opt/roots/image/run
chown 1000:1000 /opt/roots/upper /opt/roots/work
";
/// A container in a user namespace, with a name and a runtime.
const IN_A_USER_NAMESPACE: &str = r#"
cd /opt/roots && rm -f config.json && runc spec
maps='[{"containerID": 0, "hostID": 1000, "size": 65536}]'
sed -i 's/"terminal": true/"terminal": false/; s|"sh"|"/bin/pause"|; s/"readonly": true/"readonly": false/
    s/"namespaces": \[/"uidMappings": '"$maps"', "gidMappings": '"$maps"',\n"namespaces": [{"type": "user"},/' config.json
ctr c create --runtime "$1" --config config.json "$0"
"#;
const MAPS: [&str; 2] = ["uidmap=0:1000:65536", "gidmap=0:1000:65536"];

fn mount(kind: &str, source: &str, options: &[&str]) -> Mount {
    Mount {
        r#type: kind.to_owned(),
        source: source.to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        ..Mount::default()
    }
}

/// Starts a container on these mounts. Returns its pid.
fn start_on(stasis: &StasisHost, client: &Containerd, id: &str, mounts: Vec<Mount>) -> Result<u32> {
    stasis.create_container(id, &[], &["/bin/pause"])?;
    let pid = client.create_on(mounts, id, &Streams::default(), None)?;
    client.start(id, INIT)?;
    Ok(pid)
}

fn start_mapped(
    stasis: &StasisHost,
    client: &Containerd,
    id: &str,
    mounts: Vec<Mount>,
) -> Result<u32> {
    let runtime = Shim::under_test().runtime();
    stasis.run(&["sh", "-ec", IN_A_USER_NAMESPACE, id, runtime])?;
    let pid = client.create_on(mounts, id, &Streams::default(), None)?;
    client.start(id, INIT)?;
    Ok(pid)
}

/// Runs a script in a container, which has to succeed.
fn holds(client: &Containerd, id: &str, script: &str) -> Result<()> {
    let spec = process(&["sh", "-c", script], false);
    let status = client.run_exec(id, "holds", &Streams::default(), spec)?;
    assert_eq!(status, 0, "{script}");
    Ok(())
}

fn remove(stasis: &StasisHost, client: &Containerd, id: &str) -> Result<()> {
    client.kill(id, INIT, 9)?;
    client.wait(id, INIT)?;
    client.delete(id)?;
    stasis.ctr_remove_all_of(id)
}

fn files_belong_to_the_ids_of_a_user_namespace(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let id = "mapped";
    if Shim::under_test() == Shim::Go {
        // containerd's own shim of 1.7 cannot do it.
        return Ok(());
    }
    stasis.run(&["sh", "-ec", FILES])?;
    let layers = "lowerdir=/opt/roots/more:/opt/roots/image";
    let above = [
        "upperdir=/opt/roots/upper",
        "workdir=/opt/roots/work",
        layers,
    ];
    let overlay = mount("overlay", "overlay", &[&above[..], &MAPS].concat());
    let pid = start_mapped(stasis, client, id, vec![overlay])?;
    let maps = fs::read_to_string(stasis.path(format!("/proc/{pid}/uid_map")))?;
    assert!(maps.split_whitespace().eq(["0", "1000", "65536"]), "{maps}");
    let inside = stasis.path(format!("{BUNDLES}/{id}/rootfs/bin/busybox"));
    assert_eq!(fs::metadata(inside)?.uid(), 1000);
    let lower = stasis.path("/opt/roots/image/bin/busybox");
    assert_eq!(fs::metadata(lower)?.uid(), 0);
    holds(client, id, "test \"$(stat -c %u:%g /bin/busybox)\" = 0:0")?;
    holds(client, id, "echo new > /new")?;
    let new = fs::metadata(stasis.path("/opt/roots/upper/new"))?;
    assert_eq!((new.uid(), new.gid()), (1000, 1000));
    let table = stasis.run_for_text(&["cat", "/proc/mounts"])?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    assert_eq!(
        points.filter(|point| point.contains("/layers")).count(),
        0,
        "{table}"
    );
    remove(stasis, client, id)
}

fn bind_mount_is_mapped(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "mapped-bind";
    if Shim::under_test() == Shim::Go {
        return Ok(());
    }
    stasis.run(&["sh", "-ec", FILES])?;
    let bind = mount(
        "bind",
        "/opt/roots/image",
        &[&["rbind", "rw"][..], &MAPS].concat(),
    );
    start_mapped(stasis, client, id, vec![bind])?;
    holds(client, id, "test \"$(stat -c %u:%g /bin/busybox)\" = 0:0")?;
    remove(stasis, client, id)
}

/// More than one page of options.
fn many_layers_are_mounted(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    const LAYERS: &str = "/opt/roots/with-a-long-name-such-as-snapshotters-have";
    const MAKE: &str = r"
        for n in $(seq 120); do mkdir -p $0/$n/fs; done
        ln -sfn /opt/roots/image $0/image
    ";
    let id = "many";
    stasis.run(&["sh", "-ec", FILES])?;
    stasis.run(&["sh", "-ec", MAKE, LAYERS])?;
    let layers = (1..=120).map(|number| format!("{LAYERS}/{number}/fs"));
    let layers = layers.collect::<Vec<_>>().join(":");
    let layers = format!("lowerdir={layers}:{LAYERS}/image");
    let overlay = mount("overlay", "overlay", &["index=off", &layers]);
    start_on(stasis, client, id, vec![overlay])?;
    holds(client, id, "test -x /bin/pause")?;
    remove(stasis, client, id)
}

/// A FUSE file system, and a mount inside another.
fn what_is_not_mounted_is_refused(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "refused";
    if Shim::under_test() == Shim::Go {
        return Ok(());
    }
    stasis.run(&["sh", "-ec", FILES])?;
    let inside = Mount {
        target: "/mnt".to_owned(),
        ..mount("tmpfs", "inside", &["size=1m"])
    };
    for (wanted, named) in [(mount("fuse3.some-fs", "x", &[]), "FUSE"), (inside, "/mnt")] {
        let root = mount("bind", "/opt/roots/image", &["rbind", "rw"]);
        stasis.create_container(id, &[], &["/bin/pause"])?;
        let refused = client.create_on(vec![root, wanted], id, &Streams::default(), None);
        let message = format!("{refused:?}");
        assert!(message.contains(named), "{message}");
        stasis.ctr_remove(id)?;
        wait_until_clear(|| {
            let left = stasis.nothing_left_of(&[id]).err();
            Ok(left.map(|left| left.to_string()))
        })?;
    }
    Ok(())
}

/// The device is released with the mount.
fn image_file_is_mounted_on_a_loop_device(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    // Loop devices from 5 on stand for GPUs.
    const FILL: &str = r"
        cp -a /opt/roots/image/. $0 && umount $0
        [ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237
        for number in 0 1 2 3 4; do
            [ -e /dev/loop$number ] || mknod /dev/loop$number b 7 $number
        done
    ";
    // Other hosts use the machine's devices, too.
    let name = stasis.host.name();
    let (disk, file) = (format!("/mnt/{name}"), format!("/run/disk--mnt-{name}"));
    let is_free = format!("! grep -l {file} /sys/block/loop*/loop/backing_file");
    stasis.run(&["sh", "-ec", FILES])?;
    stasis.host.mount_disk(64 << 20, &disk)?;
    stasis.run(&["sh", "-ec", FILL, &disk])?;
    let ways = [
        (&["loop", "direct-io"][..], "echo new > /new"),
        (
            &["loop", "ro"],
            "test \"$(cat /new)\" = new && ! touch /newer",
        ),
    ];
    for (options, script) in ways {
        let image = mount("ext4", &file, options);
        start_on(stasis, client, "loop", vec![image])?;
        holds(client, "loop", script)?;
        remove(stasis, client, "loop")?;
        wait_until_clear(|| {
            let free = stasis.run(&["sh", "-c", &is_free]);
            Ok(free.err().map(|used| used.to_string()))
        })?;
    }
    Ok(())
}
