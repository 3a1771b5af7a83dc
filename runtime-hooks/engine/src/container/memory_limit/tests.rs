use super::*;

const MIB: u64 = 1 << 20;
/// The part of the file cache that is not in use.
const CACHE_MIB: u64 = 10;

/// A container's cgroup below a pod's, as files.
struct Tree {
    directory: tempfile::TempDir,
    version: Version,
}

impl Tree {
    fn new(
        version: Version,
        pod_mib: Option<u64>,
        container_mib: Option<u64>,
        used_mib: u64,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tree = Self { directory, version };
        tree.add(&tree.pod(), pod_mib, used_mib);
        tree.add(&tree.container(), container_mib, used_mib);
        tree
    }

    fn add(&self, path: &Path, limit_mib: Option<u64>, used_mib: u64) {
        fs::create_dir_all(path).unwrap();
        let limit = limit_mib.map_or("max".to_owned(), |mib| (mib * MIB).to_string());
        for files in limits(self.version) {
            fs::write(path.join(files[0]), &limit).unwrap();
        }
        let cache = CACHE_MIB * MIB;
        let stat = format!("cache 1\ntotal_inactive_file {cache}\ninactive_file {cache}\n");
        fs::write(path.join("memory.stat"), stat).unwrap();
        self.use_mib(path, used_mib);
    }

    fn pod(&self) -> PathBuf {
        self.directory.path().join("pod")
    }

    fn container(&self) -> PathBuf {
        self.pod().join("container")
    }

    fn cgroup(&self) -> MemoryCgroup {
        MemoryCgroup::new(match self.version {
            Version::V1 => Cgroup::v1(self.container()),
            Version::V2 => Cgroup::v2(self.container()),
        })
    }

    fn use_mib(&self, path: &Path, mib: u64) {
        for files in limits(self.version) {
            let bytes = (mib + CACHE_MIB) * MIB;
            fs::write(path.join(files[1]), bytes.to_string()).unwrap();
        }
    }
}

/// The files and MiB of limits that leave too little.
fn tight(cgroup: &MemoryCgroup, mib: u64) -> Vec<(PathBuf, u64)> {
    let tight = cgroup.tight_limits(mib * MIB).unwrap().into_iter();
    tight.map(|tight| (tight.file, tight.limit / MIB)).collect()
}

#[test]
fn the_containers_own_limits_are_found_if_they_leave_too_little() {
    for version in [Version::V1, Version::V2] {
        let tree = Tree::new(version, Some(250), Some(300), 100);
        assert_eq!(tight(&tree.cgroup(), 200), []);
        let expected = limits(version).iter();
        let expected = expected.map(|files| (tree.container().join(files[0]), 300));
        assert_eq!(tight(&tree.cgroup(), 201), expected.collect::<Vec<_>>());
    }
}

#[test]
fn limits_above_are_found_over_a_gap_without_the_controller() {
    for version in [Version::V1, Version::V2] {
        let tree = Tree::new(version, Some(250), Some(200), 100);
        let between = tree.container().join("gap/inner");
        fs::create_dir_all(&between).unwrap();
        let inner = MemoryCgroup::new(match version {
            Version::V1 => Cgroup::v1(between),
            Version::V2 => Cgroup::v2(between),
        });
        let above = inner.tight_limits_above(1000 * MIB).unwrap();
        let limits: Vec<u64> = above.iter().map(|tight| tight.limit / MIB).collect();
        assert_eq!(limits, [200, 200, 250, 250]);
        assert!(above.iter().all(|tight| tight.used == 100 * MIB));
        assert_eq!(inner.tight_limits_above(100 * MIB).unwrap(), []);
    }
}

#[test]
fn sub_cgroups_of_the_processes_count_too() {
    let tree = Tree::new(Version::V2, None, Some(5000), 100);
    let (job, other) = (tree.container().join("job"), tree.container().join("other"));
    tree.add(&job.join("step"), Some(150), 50);
    tree.add(&job, Some(5000), 50);
    tree.add(&other, Some(64), 50);
    let mut cgroup = tree.cgroup();
    let inner: Vec<PathBuf> = cgroup.down_to(&job.join("step")).collect();
    assert_eq!(inner, [job.join("step"), job.clone()]);
    assert_eq!(cgroup.down_to(&tree.pod()).count(), 0, "it is elsewhere");
    cgroup.inner.extend(inner);
    let found = limits(Version::V2).iter();
    let found = found.map(|files| (job.join("step").join(files[0]), 150));
    assert_eq!(tight(&cgroup, 1000), found.collect::<Vec<_>>());
    fs::remove_dir_all(&job).unwrap();
    assert_eq!(tight(&cgroup, 1000), []);
}

#[test]
fn swap_counts_against_the_limit_with_swap() {
    let tree = Tree::new(Version::V1, None, Some(1000), 100);
    let swapped = tree.container().join("memory.memsw.usage_in_bytes");
    fs::write(swapped, ((900 + CACHE_MIB) * MIB).to_string()).unwrap();
    let tight = tree.cgroup().tight_limits(500 * MIB).unwrap();
    assert_eq!(tight.len(), 1, "{tight:?}");
    assert!(tight[0].file.ends_with("memory.memsw.limit_in_bytes"));
    assert_eq!(tight[0].used, 900 * MIB);
}
