#[path = "../../../integration/src/check/left_out.rs"]
pub(super) mod left_out;

use left_out::say_left_out;
use stasis_linux::mountinfo;

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

fn locate(membership: &str, mountinfo: &str) -> Result<Cgroup> {
    let membership = Membership::parse(membership.as_bytes()).unwrap();
    let mounts = mountinfo::parse(mountinfo.as_bytes());
    Cgroup::locate(7, &membership, &Hierarchies::among(&mounts))
}

/// Checks the result of `path_of` for a membership, a mountinfo and a controller.
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
fn version_1_counts_only_where_it_is_mounted() {
    let membership = "4:memory:/m\n0::/u\n";
    let found = locate(membership, V2_MOUNT).unwrap();
    assert!(matches!(found, Cgroup::V2(path) if path.ends_with("u")));
    let both = format!("50 31 0:32 /elsewhere /cg/memory rw - cgroup cgroup rw,memory\n{V2_MOUNT}");
    let error = locate(membership, &both).unwrap_err();
    assert_eq!(error.to_string(), "no mount shows the cgroup /m");
}

#[test]
fn without_a_cgroup_there_is_an_error() {
    let error = locate("", V2_MOUNT).unwrap_err();
    assert_eq!(error.to_string(), "process 7 is in no cgroup");
    let error = Cgroup::of_process(i32::MAX.cast_unsigned()).unwrap_err();
    assert_eq!(error.to_string(), "process 2147483647 has ended");
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
        let metrics = cgroup.metrics().unwrap().unwrap();
        assert_eq!(metrics.type_url, name);
        assert!(!metrics.value.is_empty());
    }
}

#[test]
fn a_cgroup_that_is_gone_has_no_metrics() {
    let v1 = BTreeMap::from([("memory".to_owned(), "/no/such/m".into())]);
    for cgroup in [Cgroup::V1(v1), Cgroup::V2("/no/such/m".into())] {
        assert_eq!(cgroup.metrics().unwrap(), None);
    }
}

#[test]
fn the_cgroup_of_the_test_itself_can_be_read() {
    // Not so in a build sandbox without a cgroup mount.
    let Ok(cgroup) = Cgroup::of_process(std::process::id()) else {
        say_left_out("the cgroup of the test itself", "no cgroup is visible here").unwrap();
        return;
    };
    let metrics = cgroup.metrics().unwrap().unwrap();
    assert!(!metrics.value.is_empty());
}

#[test]
fn a_cgroup_that_is_not_named_for_the_container_is_left_alone() {
    let own = |path: &str| own_path(Some(Path::new(path)), "c1");
    assert_eq!(own("/shared"), None);
    assert_eq!(own("/default/c1"), Some("/default/c1".into()));
    assert_eq!(own_path(None, "c1"), None);
}
