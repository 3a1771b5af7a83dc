//! The files of `deploy/kubernetes`, and the blocks of documents about Kubernetes: they are YAML,
//! and the files that they name exist. No crate here reads YAML; Debian's python3-yaml does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stasis_config::Settings;

use super::{all_files, refuse, repository};

const READ: &str =
    "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.argv[1]))))";

/// Returns the documents of a YAML text, or its error.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let output = Command::new("python3").args(["-c", READ, text]).output();
    let output = output.unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let read: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let is_object = |document: &Value| document["apiVersion"].is_string();
    match read.iter().find(|document| !is_object(document)) {
        Some(other) => Err(format!("no object of Kubernetes: {other}")),
        None => Ok(read),
    }
}

fn deploy() -> PathBuf {
    repository().join("deploy/kubernetes")
}

fn text(inside: &str) -> String {
    fs::read_to_string(deploy().join(inside)).unwrap()
}

fn one(inside: &str, kind: &str) -> Value {
    let found = documents(&text(inside)).unwrap();
    let mut of_kind = found
        .into_iter()
        .filter(|document| document["kind"] == kind);
    of_kind
        .next()
        .unwrap_or_else(|| panic!("no {kind} in {inside}"))
}

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

#[test]
fn yaml_is_readable() {
    let mut wrong = Vec::new();
    for file in all_files(".yaml") {
        if let Err(why) = documents(&fs::read_to_string(&file).unwrap()) {
            wrong.push(format!("{}: {why}", file.display()));
        }
    }
    for file in all_files(".md") {
        let text = fs::read_to_string(&file).unwrap();
        // A block may be indented, as in a list.
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            let margin = block.len() - block.trim_start().len();
            let lines = block
                .lines()
                .map(|line| line.get(margin..).unwrap_or_default());
            if let Err(why) = documents(&lines.collect::<Vec<_>>().join("\n")) {
                wrong.push(format!("{}: {why}", file.display()));
            }
        }
    }
    refuse("what is not YAML of Kubernetes", &wrong);
}

#[test]
fn kustomizations_name_what_is_there_and_all_of_it() {
    let mut wrong = Vec::new();
    for file in all_files("/kustomization.yaml") {
        let folder = file.parent().unwrap();
        let kustomization = documents(&fs::read_to_string(&file).unwrap())
            .unwrap()
            .remove(0);
        let resources = strings(&kustomization["resources"]);
        for resource in &resources {
            let path = folder.join(resource);
            if !path.is_file() && !path.join("kustomization.yaml").is_file() {
                wrong.push(format!("{}: no {resource}", file.display()));
            }
        }
        for other in fs::read_dir(folder).unwrap() {
            let name = other.unwrap().file_name().into_string().unwrap();
            let is_named = resources.contains(&name.as_str()) || name == "kustomization.yaml";
            if name.ends_with(".yaml") && !is_named {
                wrong.push(format!("{}: {name} is left out", file.display()));
            }
        }
        for generator in kustomization["configMapGenerator"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let files = strings(&generator["files"]);
            let missing = files.iter().filter(|name| !folder.join(name).is_file());
            wrong.extend(missing.map(|name| format!("{}: no {name}", file.display())));
        }
    }
    refuse("kustomizations that do not fit", &wrong);
}

#[test]
fn installer_is_run_as_it_asks() {
    let script = text("image/installer.sh");
    let daemon_set = one("install/installer.yaml", "DaemonSet");
    let pod = &daemon_set["spec"]["template"]["spec"];
    let container = &pod["initContainers"][0];
    let arguments = strings(&container["args"]);
    assert!(script.contains("installer.sh install|remove containerd|crio"));
    assert_eq!(arguments, ["install", "containerd"]);
    let remove = text("remove/kustomization.yaml");
    assert!(remove.contains("path: /spec/template/spec/initContainers/0/args/0, value: remove}"));

    let host = serde_json::json!([true, true]);
    let privileged = &container["securityContext"]["privileged"];
    assert_eq!(serde_json::json!([pod["hostPID"], privileged]), host);
    for mount in container["volumeMounts"].as_array().unwrap() {
        let path = mount["mountPath"].as_str().unwrap();
        assert!(script.contains(&format!("{path}/")), "{path}");
    }
    assert_eq!(container["env"][0]["name"], "NODE_NAME");
    let image = text("image/Containerfile");
    assert!(image.contains("COPY installer.sh /installer.sh\nENTRYPOINT [\"/installer.sh\"]"));
    assert!(repository().join("config/shim-in-use.sh").is_file() && script.contains("shim-in-use"));
}

#[test]
fn what_stays_of_an_installer_has_no_rights() {
    let daemon_set = one("install/installer.yaml", "DaemonSet");
    let pod = &daemon_set["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    let stays = &pod["containers"][0];
    assert_eq!(strings(&stays["args"]), ["stay"]);
    assert_eq!(pod["containers"].as_array().map(Vec::len), Some(1));
    assert!(stays.get("volumeMounts").is_none(), "{stays}");
    let rights = &stays["securityContext"];
    assert_eq!(strings(&rights["capabilities"]["drop"]), ["ALL"]);
    assert!(rights.get("privileged").is_none() && rights["runAsNonRoot"] == true);
}

/// A cluster may admit its priority in its own namespace by a quota alone, taint its GPU nodes, and
/// pull with a password.
#[test]
fn installer_is_admitted_and_scheduled() {
    let daemon_set = one("install/installer.yaml", "DaemonSet");
    let pod = &daemon_set["spec"]["template"]["spec"];
    let quota = one("install/critical-pods.yaml", "ResourceQuota");
    let admitted = &quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"];
    assert_eq!(
        strings(admitted),
        [pod["priorityClassName"].as_str().unwrap()]
    );
    assert_eq!(
        pod["tolerations"],
        serde_json::json!([{"operator": "Exists"}])
    );
    assert_eq!(pod["imagePullSecrets"][0]["name"], "registry");
}

/// What a drain or a preemption ends is no failed try of the job.
#[test]
fn preempted_job_does_not_use_up_its_tries() {
    let queue = documents(&text("preemption/queue.yaml")).unwrap();
    let job = one("preemption/job.yaml", "Job");
    let ignored = serde_json::json!([
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    ]);
    assert_eq!(job["spec"]["podFailurePolicy"]["rules"], ignored);
    // Kubernetes takes such a policy for no other.
    assert_eq!(job["spec"]["template"]["spec"]["restartPolicy"], "Never");
    let named = |kind: &str, name: &Value| {
        let of_kind = |document: &&Value| document["kind"] == kind;
        let mut found = queue.iter().filter(of_kind);
        found.any(|document| document["metadata"]["name"] == *name)
    };
    assert!(named("Namespace", &job["metadata"]["namespace"]));
    let labels = &job["metadata"]["labels"];
    assert!(named("LocalQueue", &labels["kueue.x-k8s.io/queue-name"]));
    assert!(named(
        "WorkloadPriorityClass",
        &labels["kueue.x-k8s.io/priority-class"]
    ));
}

#[test]
fn names_are_the_same_everywhere() {
    let class = one("install/runtime-class.yaml", "RuntimeClass");
    let job = one("preemption/job.yaml", "Job");
    let pod = &job["spec"]["template"];
    assert_eq!(pod["spec"]["runtimeClassName"], class["metadata"]["name"]);
    for engine in ["containerd", "crio"] {
        let setup = repository().join(format!("runtime-hooks/cli/src/setup/{engine}.rs"));
        let handler = format!("const NAME: &str = {};", class["handler"]);
        assert!(
            fs::read_to_string(setup).unwrap().contains(&handler),
            "{engine}"
        );
    }
    let flavor = one("preemption/queue.yaml", "ResourceFlavor");
    let label = &class["scheduling"]["nodeSelector"];
    assert_eq!(&flavor["spec"]["nodeLabels"], label);
    let script = text("image/installer.sh");
    assert_eq!(label["stasis.io/node"], "ready");
    assert!(script.contains("state=ready\n") && script.contains("\"stasis.io/node=$state\""));
    assert!(class["overhead"]["podFixed"]["memory"].is_string());

    let daemon_set = one("install/installer.yaml", "DaemonSet");
    let volume = &daemon_set["spec"]["template"]["spec"]["volumes"][1];
    let kustomization = one("preemption/kustomization.yaml", "Kustomization");
    let generated = &kustomization["configMapGenerator"][0];
    assert_eq!(volume["configMap"]["name"], generated["name"]);
    assert_eq!(strings(&generated["files"]), ["stasis.toml"]);
    Settings::load(Some(&deploy().join("preemption/stasis.toml"))).unwrap();

    let create = fs::read_to_string(repository().join("docs/kubernetes.md")).unwrap();
    let annotations = pod["metadata"]["annotations"].as_object().unwrap();
    for annotation in annotations.keys().map(String::as_str) {
        assert!(create.contains(&format!("`{annotation}=")), "{annotation}");
    }
}

/// Files of the repository that are named exist.
#[test]
fn image_is_built_from_what_is_there() {
    let build = text("image/build.sh");
    for name in ["installer.sh", "programs.sh", "Containerfile"] {
        assert!(build.contains(name) && Path::new(&deploy().join("image").join(name)).is_file());
    }
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    assert!(makefile.contains("\tdeploy/kubernetes/image/build.sh $(IMAGE)\n"));
    let assemble = fs::read_to_string(repository().join("config/package/assemble.sh")).unwrap();
    assert!(assemble.contains("name=stasis-$version-x86_64\n"));
    assert!(build.contains("target/package/stasis-$version-x86_64.tar.gz"));
    assert!(text("image/Containerfile").contains("ADD stasis-*-x86_64.tar.gz /package/\n"));
    assert!(text("image/installer.sh").contains("$(echo /package/stasis-*)"));
}
