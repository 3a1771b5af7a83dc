use std::fs;

use stasis_linux::cgroup::Cgroup;

use super::*;
use crate::container::memory_limit;

const MIB: u64 = 1 << 20;

/// A bundle whose `config.json` has these resources.
struct Bundle(tempfile::TempDir);

impl Bundle {
    fn with(resources: &Value) -> Self {
        let bundle = Self(tempfile::tempdir().unwrap());
        let spec = json!({ "ociVersion": "1.0.2", "linux": { "resources": resources } });
        fs::write(bundle.0.path().join("config.json"), spec.to_string()).unwrap();
        bundle
    }

    fn spec(&self) -> Spec {
        Spec::read(self.0.path()).unwrap()
    }

    fn resources(&self) -> Value {
        self.spec().tree()["linux"]["resources"].clone()
    }

    fn raise(&self, needed: u64, operation: &Path, cgroup: &MemoryCgroup) -> RaisedSpec {
        let mut spec = self.spec();
        let raised = RaisedSpec::of(self.0.path(), &spec, needed).unwrap();
        raised.apply(&mut spec);
        raised.record(Some(cgroup), operation).unwrap();
        spec.write().unwrap();
        raised
    }
}

fn v2(directory: &Path) -> MemoryCgroup {
    MemoryCgroup::new(Cgroup::v2(directory.to_owned()))
}

fn wanted() -> Value {
    json!({
        "memory": { "limit": 200 * MIB, "swap": 300 * MIB, "reservation": 7 },
        "unified": { "memory.high": "150M", "memory.max": (180 * MIB).to_string(), "io.weight": "9" },
    })
}

#[test]
fn every_limit_that_allows_too_little_is_raised_and_put_back() {
    let (bundle, operation) = (Bundle::with(&wanted()), tempfile::tempdir().unwrap());
    let cgroup = tempfile::tempdir().unwrap();
    let raised = bundle.raise(1000 * MIB, operation.path(), &v2(cgroup.path()));
    assert_eq!(raised.lowest(), ("unified/memory.high", 150 * MIB));
    let (limit, text) = (1000 * MIB, (1000 * MIB).to_string());
    assert_eq!(
        bundle.resources(),
        json!({
            "memory": { "limit": limit, "swap": 1100 * MIB, "reservation": 7 },
            "unified": { "memory.high": text, "memory.max": text, "io.weight": "9" },
        })
    );
    let given = raised.resources(&bundle.spec());
    assert_eq!(given["memory"], wanted()["memory"]);
    assert_eq!(given["unified"]["io.weight"], "9");
    assert_eq!(given["unified"]["memory.high"], (150 * MIB).to_string());
    memory_limit::put_back(operation.path()).unwrap();
    assert_eq!(bundle.resources(), given);
    assert_eq!(fs::read_dir(operation.path()).unwrap().count(), 0);
}

#[test]
fn the_cgroup_of_a_restore_that_was_killed_gets_its_limits_back() {
    let (bundle, operation) = (Bundle::with(&wanted()), tempfile::tempdir().unwrap());
    let cgroup = tempfile::tempdir().unwrap();
    let directory = cgroup.path();
    bundle.raise(1000 * MIB, operation.path(), &v2(directory));
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    // What the low-level runtime has made, with 170 MiB in use.
    for name in ["memory.max", "memory.high"] {
        write(name, &(1000 * MIB).to_string());
    }
    write("memory.current", &(170 * MIB).to_string());
    let error = memory_limit::put_back(operation.path()).unwrap_err();
    assert!(error.to_string().contains("memory.high"), "{error}");
    let read = |name| fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(read("memory.max"), (180 * MIB).to_string());
    assert_eq!(read("memory.high"), (1000 * MIB).to_string());
    write("memory.current", "0");
    memory_limit::put_back(operation.path()).unwrap();
    assert_eq!(read("memory.high"), (150 * MIB).to_string());
}

#[test]
fn version_1_has_a_limit_with_swap() {
    let bundle = Bundle::with(&json!({ "memory": { "limit": MIB, "swap": 3 * MIB } }));
    let raised = RaisedSpec::of(bundle.0.path(), &bundle.spec(), 10 * MIB).unwrap();
    let cgroup = MemoryCgroup::new(Cgroup::v1("/m/c".into()));
    assert_eq!(
        raised.in_cgroup(&cgroup),
        [
            RaisedLimit::new("/m/c/memory.limit_in_bytes".into(), MIB, 10 * MIB),
            RaisedLimit::new("/m/c/memory.memsw.limit_in_bytes".into(), 3 * MIB, 12 * MIB),
        ]
    );
}

#[test]
fn what_is_no_limit_or_somebody_elses_stays() {
    for enough in [
        json!({}),
        json!({ "memory": { "limit": -1, "swap": -1 }, "unified": { "memory.high": "max" } }),
        json!({ "memory": { "limit": 0 }, "unified": { "memory.max": "1G" } }),
        json!({ "memory": { "limit": 10 * MIB } }),
    ] {
        let bundle = Bundle::with(&enough);
        assert!(
            RaisedSpec::of(bundle.0.path(), &bundle.spec(), 10 * MIB).is_none(),
            "{enough}"
        );
    }
    let bundle = Bundle::with(&json!({ "memory": { "limit": MIB } }));
    let operation = tempfile::tempdir().unwrap();
    bundle.raise(10 * MIB, operation.path(), &v2(operation.path()));
    // The caller makes its bundle again, with another limit.
    let anew = r#"{"linux": {"resources": {"memory": {"limit": 5}}}}"#;
    fs::write(bundle.0.path().join("config.json"), anew).unwrap();
    memory_limit::put_back(operation.path()).unwrap();
    assert_eq!(
        fs::read_to_string(bundle.0.path().join("config.json")).unwrap(),
        anew
    );
    // And a bundle that is gone.
    bundle.raise(10 * MIB, operation.path(), &v2(operation.path()));
    drop(bundle);
    memory_limit::put_back(operation.path()).unwrap();
}
