use super::*;

const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
";
const HYBRID_MOUNT: &str =
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate\n";
const V2_MOUNT: &str =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

fn locate(membership: &str, mountinfo: &str) -> Result<Cgroup, CgroupError> {
    Cgroup::locate(7, membership, &mounts(mountinfo))
}

/// What `path_of` says, for a table of (membership, mountinfo, controller, path).
fn assert_path(membership: &str, mountinfo: &str, controller: &str, expected: &str) {
    let cgroup = locate(membership, mountinfo).unwrap();
    let path = cgroup.path_of(controller).unwrap();
    // As text: paths that differ by a "/" at the end compare equal.
    assert_eq!(path.to_str().unwrap(), expected, "{membership}");
}

#[test]
fn v1_has_a_directory_per_controller() {
    let membership =
        "9:name=systemd:/s\n5:pids:/p\n4:memory:/k8s/pod:1/c\n2:cpu,cpuacct:/c\n0::/\n";
    let hybrid = format!("{V1_MOUNTS}{HYBRID_MOUNT}");
    let cgroup = locate(membership, &hybrid).unwrap();
    let expected = [
        ("cpu", "/sys/fs/cgroup/cpu,cpuacct/c"),
        ("cpuacct", "/sys/fs/cgroup/cpu,cpuacct/c"),
        ("memory", "/sys/fs/cgroup/memory/k8s/pod:1/c"),
        ("pids", "/sys/fs/cgroup/pids/p"),
    ];
    let expected = expected.map(|(controller, path)| (controller.to_owned(), path.into()));
    assert_eq!(cgroup, Cgroup::V1(expected.into()));
    assert_eq!(cgroup.path_of("rdma"), None);
}

#[test]
fn v2_has_one_directory() {
    assert_path("0::/a/b\n", V2_MOUNT, "memory", "/sys/fs/cgroup/a/b");
    assert_path("0::/\n", V2_MOUNT, "cpu", "/sys/fs/cgroup");
    // A named hierarchy, or one for devices alone, does not make it a v1 host.
    let membership = "2:name=systemd:/s\n1:net_cls:/\n0::/a\n";
    assert_path(membership, V2_MOUNT, "pids", "/sys/fs/cgroup/a");
}

#[test]
fn the_root_of_a_mount_is_not_part_of_the_path() {
    let line = |root: &str| format!("35 31 0:32 {root} /cg/memory rw - cgroup cgroup rw,memory\n");
    for (root, path, expected) in [
        ("/docker/d1", "/docker/d1/inner", "/cg/memory/inner"),
        ("/docker/d1", "/docker/d1", "/cg/memory"),
        // Mounted outside of the cgroup namespace, as runc does for a container of its own.
        ("/..", "/../sibling", "/cg/memory/sibling"),
        ("/with\\040space", "/with space/x", "/cg/memory/x"),
    ] {
        assert_path(
            &format!("4:memory:{path}\n"),
            &line(root),
            "memory",
            expected,
        );
    }
    for (root, path) in [
        ("/docker/d1", "/docker/d10"),
        ("/docker/d1", "/"),
        // Outside of the namespace, where "/" is not what it seems.
        ("/", "/../sibling"),
        ("/..", "/inner"),
    ] {
        let error = locate(&format!("4:memory:{path}\n"), &line(root)).unwrap_err();
        assert!(
            matches!(&error, CgroupError::NotVisible { path: named } if named == path),
            "{root} {path}: {error}"
        );
    }
}

#[test]
fn the_first_mount_that_shows_the_path_is_taken() {
    let part = "50 31 0:32 /docker/d1 /elsewhere rw - cgroup cgroup rw,memory\n";
    for mountinfo in [format!("{part}{V1_MOUNTS}"), format!("{V1_MOUNTS}{part}")] {
        let expected = "/sys/fs/cgroup/memory/other";
        assert_path("4:memory:/other\n", &mountinfo, "memory", expected);
    }
    let over = "60 31 0:32 /docker /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let mountinfo = format!("{V1_MOUNTS}{over}");
    let expected = "/sys/fs/cgroup/memory/d1";
    assert_path("4:memory:/docker/d1\n", &mountinfo, "memory", expected);
}

#[test]
fn version_1_counts_only_where_it_is_mounted() {
    let membership = "4:memory:/m\n0::/u\n";
    let found = locate(membership, V2_MOUNT).unwrap();
    assert!(matches!(found, Cgroup::V2(path) if path.ends_with("u")));
    let both = format!("50 31 0:32 /elsewhere /cg/memory rw - cgroup cgroup rw,memory\n{V2_MOUNT}");
    let error = locate(membership, &both).unwrap_err();
    assert!(matches!(error, CgroupError::NotVisible { path } if path == "/m"));
}

#[test]
fn nonsense_and_nothing_are_errors() {
    let error = locate("", V2_MOUNT).unwrap_err();
    assert_eq!(error.to_string(), "process 7 is in no cgroup");
    let error = locate("memory\n", V2_MOUNT).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot understand /proc/7/cgroup: \"memory\""
    );
    let error = Cgroup::of_process(u32::MAX).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /proc/4294967295/cgroup");
}

#[test]
fn metrics_carry_the_bare_name_of_their_message() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let v1 = Cgroup::V1(BTreeMap::from([("memory".to_owned(), path.clone())]));
    for (cgroup, name) in [
        (v1, "io.containerd.cgroups.v1.Metrics"),
        (Cgroup::V2(path), "io.containerd.cgroups.v2.Metrics"),
    ] {
        let metrics = cgroup.metrics().unwrap();
        assert_eq!(metrics.type_url, name);
        assert!(!metrics.value.is_empty());
    }
}

#[test]
fn a_cgroup_that_is_gone_has_no_metrics() {
    let v1 = BTreeMap::from([("memory".to_owned(), "/no/such/m".into())]);
    for cgroup in [Cgroup::V1(v1), Cgroup::V2("/no/such/m".into())] {
        let error = cgroup.metrics().unwrap_err();
        assert_eq!(error.to_string(), "the cgroup /no/such/m is gone");
    }
}

#[test]
fn the_cgroup_of_the_test_itself_can_be_read() {
    // Not so in a build sandbox without a cgroup mount.
    let Ok(cgroup) = Cgroup::of_process(std::process::id()) else {
        eprintln!("skipped: no cgroup is visible here");
        return;
    };
    let metrics = cgroup.metrics().unwrap();
    assert!(!metrics.value.is_empty());
}
