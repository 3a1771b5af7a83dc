use super::*;

const V1: &str = "\
23 1 8:1 / / rw - ext4 /dev/sda1 rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
";
const HYBRID: &str =
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate\n";
const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const MEMBERSHIP: &str = "\
9:name=systemd:/s
6:freezer:/f/c1
4:memory:/k8s/pod:1/c1/inner
2:cpu,cpuacct:/c1
0::/u/c1
";

fn hierarchies(table: &str) -> Hierarchies {
    Hierarchies::among(&mountinfo::parse(table.as_bytes()))
}

fn membership() -> Membership {
    Membership::parse(MEMBERSHIP.as_bytes()).unwrap()
}

fn of_process(table: &str, controller: &str) -> Option<Cgroup> {
    hierarchies(table).cgroup_of(&membership(), controller)
}

fn v1(path: &str) -> Cgroup {
    Cgroup::v1(path.into())
}

fn v2(path: &str) -> Cgroup {
    Cgroup::v2(path.into())
}

#[test]
fn version_1_has_a_hierarchy_for_each_group_of_controllers() {
    let cgroup = of_process(V1, "memory").unwrap();
    assert_eq!(cgroup, v1("/sys/fs/cgroup/memory/k8s/pod:1/c1/inner"));
    let cgroup = of_process(V1, "cpuacct").unwrap();
    assert_eq!(cgroup, v1("/sys/fs/cgroup/cpu,cpuacct/c1"));
    let freezers = hierarchies(V1).freezers_of(&membership());
    assert_eq!(freezers, [v1("/sys/fs/cgroup/freezer/f/c1")]);
    assert_eq!(of_process(V1, "rdma"), None);
    assert!(hierarchies(V1).has_v1("memory") && !hierarchies(V1).has_v1("rdma"));
}

#[test]
fn version_2_has_one_directory_for_all() {
    for controller in ["memory", "freezer"] {
        let cgroup = of_process(V2, controller).unwrap();
        assert_eq!(cgroup, v2("/sys/fs/cgroup/u/c1"));
    }
    let freezers = hierarchies(V2).freezers_of(&membership());
    assert_eq!(freezers, [v2("/sys/fs/cgroup/u/c1")]);
    let root = Path::new("/");
    // As text: paths that differ by a "/" at the end compare equal.
    let directory = hierarchies(V2).v2(root).unwrap();
    assert_eq!(directory.to_str(), Some("/sys/fs/cgroup"));
}

#[test]
fn a_hybrid_host_has_both_and_a_controller_is_in_one() {
    let table = format!("{V1}{HYBRID}");
    let memory = of_process(&table, "memory").unwrap();
    assert_eq!(memory.version(), crate::cgroup::Version::V1);
    let rdma = of_process(&table, "rdma").unwrap();
    assert_eq!(rdma, v2("/sys/fs/cgroup/unified/u/c1"));
    let freezers = hierarchies(&table).freezers_of(&membership());
    let expected = [
        v1("/sys/fs/cgroup/freezer/f/c1"),
        v2("/sys/fs/cgroup/unified/u/c1"),
    ];
    assert_eq!(freezers, expected);
    let everywhere = hierarchies(&table).everywhere(Path::new("/default/c1"));
    assert_eq!(everywhere.len(), 5, "{everywhere:?}");
}

#[test]
fn hierarchies_are_found_wherever_they_are_mounted() {
    let elsewhere = table_with_root("/");
    let cgroup = hierarchies(&elsewhere).cgroup("memory", Path::new("/a"));
    assert_eq!(cgroup, Some(v1("/cg/memory/a")));
    assert_eq!(hierarchies("").cgroup("memory", Path::new("/a")), None);
}

fn table_with_root(root: &str) -> String {
    format!("35 31 0:32 {root} /cg/memory rw - cgroup cgroup rw,memory\n")
}

#[test]
fn the_root_of_a_mount_is_not_part_of_the_path() {
    for (root, path, expected) in [
        ("/docker/d1", "/docker/d1/inner", Some("/cg/memory/inner")),
        ("/docker/d1", "/docker/d1", Some("/cg/memory")),
        // Mounted outside of the cgroup namespace, as runc does for a container of its own.
        ("/..", "/../sibling", Some("/cg/memory/sibling")),
        ("/with\\040space", "/with space/x", Some("/cg/memory/x")),
        ("/docker/d1", "/docker/d10", None),
        ("/docker/d1", "/", None),
        // Outside of the namespace, where "/" is not what it seems.
        ("/", "/../sibling", None),
        ("/..", "/inner", None),
    ] {
        let found = hierarchies(&table_with_root(root)).v1("memory", Path::new(path));
        let found = found.as_ref().and_then(|path| path.to_str());
        assert_eq!(found, expected, "{root} {path}");
    }
}

#[test]
fn the_first_mount_that_shows_the_path_is_taken() {
    let part = "50 23 0:32 /docker/d1 /elsewhere rw - cgroup cgroup rw,memory\n";
    for table in [format!("{part}{V1}"), format!("{V1}{part}")] {
        let found = hierarchies(&table).v1("memory", Path::new("/other"));
        assert_eq!(found, Some("/sys/fs/cgroup/memory/other".into()));
    }
}

#[test]
fn hidden_mounts_show_nothing() {
    let on_top = "60 35 0:32 /docker /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let table = format!("{V1}{on_top}");
    let found = hierarchies(&table).v1("memory", Path::new("/docker/d1"));
    assert_eq!(found, Some("/sys/fs/cgroup/memory/d1".into()));
    // Version 2 was mounted over all of version 1.
    let over = V2.replace("30 23", "30 31");
    let found = hierarchies(&format!("{V1}{over}")).cgroup_of(&membership(), "memory");
    assert_eq!(found, Some(v2("/sys/fs/cgroup/u/c1")));
    // A file system that was mounted over a directory further up hides the mounts in it.
    let above = "70 23 0:50 / /sys/fs rw - tmpfs tmpfs rw\n";
    let found = hierarchies(&format!("{V1}{above}"));
    assert_eq!(found, hierarchies(""));
}
