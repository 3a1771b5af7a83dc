use super::raised_limit::RECORD;
use super::*;

const MIB: u64 = 1 << 20;

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
        fs::create_dir_all(tree.container()).unwrap();
        for (path, limit) in [(tree.pod(), pod_mib), (tree.container(), container_mib)] {
            let limit = limit.map_or("max".to_owned(), |mib| (mib * MIB).to_string());
            fs::write(path.join("cgroup.procs"), "").unwrap();
            for name in limit_files(version) {
                fs::write(path.join(name), &limit).unwrap();
            }
            // 10 MiB of it are files that nobody uses.
            fs::write(
                path.join(usage_file(version)),
                ((used_mib + 10) * MIB).to_string(),
            )
            .unwrap();
            let stat = format!(
                "cache 1\ntotal_inactive_file {0}\ninactive_file {0}\n",
                10 * MIB
            );
            fs::write(path.join("memory.stat"), stat).unwrap();
        }
        tree
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

    fn limit(&self, path: &Path) -> Option<u64> {
        let name = limit_files(self.version).next().unwrap();
        read_limit(&path.join(name))
            .unwrap()
            .map(|limit| limit / MIB)
    }

    fn use_mib(&self, mib: u64) {
        fs::write(
            self.container().join(usage_file(self.version)),
            (mib * MIB).to_string(),
        )
        .unwrap();
    }
}

#[test]
fn limits_that_leave_enough_are_left_alone() {
    for version in [Version::V1, Version::V2] {
        let tree = Tree::new(version, None, Some(300), 100);
        let operation = tempfile::tempdir().unwrap();
        assert!(
            tree.cgroup()
                .raise(200 * MIB, operation.path())
                .unwrap()
                .is_empty()
        );
        assert!(!operation.path().join(RECORD).exists());
        put_back(operation.path()).unwrap();
    }
}

#[test]
fn every_limit_in_the_way_is_raised_and_put_back() {
    for version in [Version::V1, Version::V2] {
        let tree = Tree::new(version, Some(250), Some(200), 100);
        let operation = tempfile::tempdir().unwrap();
        let raised = tree.cgroup().raise(1000 * MIB, operation.path()).unwrap();
        assert_eq!(raised.len(), 4, "{raised:?}");
        assert_eq!(
            (tree.limit(&tree.pod()), tree.limit(&tree.container())),
            (Some(1100), Some(1100))
        );
        put_back(operation.path()).unwrap();
        assert_eq!(
            (tree.limit(&tree.pod()), tree.limit(&tree.container())),
            (Some(250), Some(200))
        );
        assert!(!operation.path().join(RECORD).exists());
    }
}

#[test]
fn a_limit_is_not_lowered_below_what_is_in_use() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(1000 * MIB, operation.path()).unwrap();
    tree.use_mib(900);
    let error = put_back(operation.path()).unwrap_err();
    assert!(error.to_string().contains("limit of 200 MiB"), "{error}");
    assert_eq!(tree.limit(&tree.container()), Some(1100));
    tree.use_mib(150);
    put_back(operation.path()).unwrap();
    assert_eq!(tree.limit(&tree.container()), Some(200));
}

#[test]
fn what_was_raised_twice_goes_back_to_the_beginning() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    tree.cgroup().raise(900 * MIB, operation.path()).unwrap();
    assert_eq!(tree.limit(&tree.container()), Some(1000));
    put_back(operation.path()).unwrap();
    assert_eq!(tree.limit(&tree.container()), Some(200));
}

#[test]
fn a_limit_that_somebody_else_set_meanwhile_stays() {
    let tree = Tree::new(Version::V2, None, Some(200), 100);
    let operation = tempfile::tempdir().unwrap();
    tree.cgroup().raise(500 * MIB, operation.path()).unwrap();
    fs::write(tree.container().join("memory.max"), (300 * MIB).to_string()).unwrap();
    put_back(operation.path()).unwrap();
    assert_eq!(
        read_limit(&tree.container().join("memory.max")).unwrap(),
        Some(300 * MIB)
    );
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
