use super::raised_limit::RECORD;
use super::*;

const MIB: u64 = 1 << 20;
/// What of the file cache nobody uses.
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
            fs::write(path.join(files.limit), &limit).unwrap();
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

    /// All limits of a directory, in MiB.
    fn limits(&self, path: &Path) -> Vec<Option<u64>> {
        let read = |files: &LimitFiles| read_limit(&path.join(files.limit)).unwrap();
        let read = limits(self.version).iter().map(read);
        read.map(|limit| limit.map(|bytes| bytes / MIB)).collect()
    }

    fn set(&self, mib: u64) {
        for files in limits(self.version) {
            fs::write(self.container().join(files.limit), (mib * MIB).to_string()).unwrap();
        }
    }

    fn use_mib(&self, path: &Path, mib: u64) {
        for files in limits(self.version) {
            let bytes = (mib + CACHE_MIB) * MIB;
            fs::write(path.join(files.usage), bytes.to_string()).unwrap();
        }
    }
}

#[test]
fn limits_that_leave_enough_are_left_alone() {
    for version in [Version::V1, Version::V2] {
        let tree = Tree::new(version, None, Some(300), 100);
        let operation = tempfile::tempdir().unwrap();
        let raised = tree.cgroup().raise(200 * MIB, operation.path()).unwrap();
        assert_eq!(raised, []);
        assert!(!operation.path().join(RECORD).exists());
        put_back(operation.path()).unwrap();
    }
}

#[test]
fn the_containers_own_limits_are_raised_and_put_back() {
    for version in [Version::V1, Version::V2] {
        let tree = Tree::new(version, Some(250), Some(200), 100);
        let operation = tempfile::tempdir().unwrap();
        let raised = tree.cgroup().raise(1000 * MIB, operation.path()).unwrap();
        assert_eq!(raised.len(), 2, "{raised:?}");
        assert_eq!(tree.limits(&tree.container()), [Some(1100); 2]);
        assert_eq!(tree.limits(&tree.pod()), [Some(250); 2], "the pod's stay");
        put_back(operation.path()).unwrap();
        assert_eq!(tree.limits(&tree.container()), [Some(200); 2]);
        assert!(!operation.path().join(RECORD).exists());
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
fn sub_cgroups_of_the_processes_are_raised_too() {
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
    let operation = tempfile::tempdir().unwrap();
    cgroup.raise(1000 * MIB, operation.path()).unwrap();
    assert_eq!(tree.limits(&job.join("step")), [Some(1050); 2]);
    assert_eq!(tree.limits(&other), [Some(64); 2]);
    fs::remove_dir_all(&job).unwrap();
    put_back(operation.path()).unwrap();
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

#[test]
fn a_limit_is_raised_to_whole_pages() {
    let page = page_size() as u64;
    assert_eq!(whole_pages(1), page);
    assert_eq!(whole_pages(page), page);
    assert_eq!(whole_pages(u64::MAX), u64::MAX);
}

#[test]
fn a_limit_is_not_lowered_below_what_is_in_use() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(1000 * MIB, operation.path()).unwrap();
    tree.use_mib(&tree.container(), 900);
    let error = put_back(operation.path()).unwrap_err().to_string();
    assert!(error.contains("limit of 200 MiB"), "{error}");
    assert_eq!(tree.limits(&tree.container()), [Some(1100); 2]);
    tree.use_mib(&tree.container(), 150);
    put_back(operation.path()).unwrap();
    assert_eq!(tree.limits(&tree.container()), [Some(200); 2]);
}

#[test]
fn what_was_raised_twice_goes_back_to_the_beginning() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    tree.cgroup().raise(900 * MIB, operation.path()).unwrap();
    assert_eq!(tree.limits(&tree.container()), [Some(1000); 2]);
    put_back(operation.path()).unwrap();
    assert_eq!(tree.limits(&tree.container()), [Some(200); 2]);
}

/// Between the second record and the second limit; and the same with a third.
#[test]
fn a_second_raise_that_is_cut_off_goes_back_to_the_beginning() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    for needed in [900, 1200] {
        tree.cgroup().raise(needed * MIB, operation.path()).unwrap();
        tree.set(600);
    }
    put_back(operation.path()).unwrap();
    assert_eq!(tree.limits(&tree.container()), [Some(200); 2]);
}

#[test]
fn a_limit_that_somebody_else_set_meanwhile_stays() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    tree.set(300);
    put_back(operation.path()).unwrap();
    assert_eq!(tree.limits(&tree.container()), [Some(300); 2]);
    assert!(!operation.path().join(RECORD).exists());
}

#[test]
fn what_somebody_else_set_before_a_second_raise_is_the_beginning() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    tree.set(300);
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    put_back(operation.path()).unwrap();
    assert_eq!(tree.limits(&tree.container()), [Some(300); 2]);
}

#[test]
fn a_cgroup_that_is_gone_has_nothing_to_put_back() {
    let tree = Tree::new(Version::V1, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    fs::remove_dir_all(tree.container()).unwrap();
    put_back(operation.path()).unwrap();
    assert!(!operation.path().join(RECORD).exists());
}
