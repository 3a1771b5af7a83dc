//! OCI create and run: sets variables in the environment of a container that has to be
//! checkpointable. The low-level runtime does all else.
//!
//! Ranks of NCCL that share GPU memory are saved by the driver and lost at their restore, so such a
//! checkpoint is refused (`preflight/nccl.rs`). The variables that keep NCCL from it must be set
//! when the program starts, hours before anyone reads the refusal.

use std::path::Path;

use serde_json::Value;

use crate::container::at_stop::repository::{NoRepository, repository_of};
use crate::container::at_stop::{AtStop, InvalidAtStop};
use crate::container::hooks::{Hooks, InvalidHook};
use crate::container::spec::annotation::{NCCL as ANNOTATION, UnknownAnnotation, refuse_unknown};
use crate::container::spec::{Spec, SpecError};

/// The annotation's only value.
pub(crate) const CHECKPOINTABLE: &str = "checkpointable";

/// The variables that keep NCCL from sharing memory of the driver. Fewer are enough
/// (`preflight/nccl.rs`); these were tried longest (driver 580.159, H200).
pub(crate) const NCCL_APART: [(&str, &str); 4] = [
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_CUMEM_ENABLE", "0"),
    ("NCCL_CUMEM_HOST_ENABLE", "0"),
    ("NCCL_NVLS_ENABLE", "0"),
];
/// Open RDMA devices are refused, too (`rdma`): NCCL opens those that it finds.
const WITHOUT_RDMA: (&str, &str) = ("NCCL_IB_DISABLE", "1");

/// Why a container was not created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CreateError {
    #[error(
        "the annotation {ANNOTATION}={given:?} of the container is unknown, so nothing was created; \
         {ANNOTATION}={CHECKPOINTABLE} is what there is"
    )]
    Unknown { given: String },
    #[error("{0} Nothing was created")]
    Annotation(#[from] UnknownAnnotation),
    #[error("{0}; nothing was created")]
    Hook(#[from] InvalidHook),
    #[error("{0}; nothing was created")]
    AtStop(#[from] InvalidAtStop),
    #[error("{0}; nothing was created")]
    Repository(NoRepository),
    #[error(
        "nothing was created: the annotation {ANNOTATION} asks for variables in the container's \
         environment"
    )]
    Write(#[from] SpecError),
}

/// Prepares the specification in a bundle for its container. Variables that it sets already stay. A
/// specification that cannot be read is left to the low-level runtime, which refuses it in its own
/// words.
///
/// # Errors
/// [`CreateError`]; the specification is as it was.
pub fn prepare(bundle: &Path) -> Result<(), CreateError> {
    let Ok(mut spec) = Spec::read(bundle) else {
        return Ok(());
    };
    refuse_unknown(&spec)?;
    Hooks::declared(&stasis_config::Hooks::default(), Some(&spec))?;
    AtStop::of(&spec)?;
    match spec.annotation(ANNOTATION) {
        None => return Ok(()),
        Some(CHECKPOINTABLE) => {}
        Some(given) => {
            let given = given.to_owned();
            return Err(CreateError::Unknown { given });
        }
    }
    let missing: Vec<Value> = NCCL_APART
        .into_iter()
        .chain([WITHOUT_RDMA])
        .filter(|(name, _)| spec.environment(name).is_none())
        .map(|(name, value)| Value::from(format!("{name}={value}")))
        .collect();
    let Some(process) = spec
        .tree_mut()
        .get_mut("process")
        .filter(|it| it.is_object())
    else {
        return Ok(());
    };
    match process.get_mut("env") {
        Some(Value::Array(variables)) => variables.extend(missing),
        Some(Value::Null) | None => process["env"] = missing.into(),
        Some(_) => return Ok(()),
    }
    Ok(spec.write()?)
}

/// Refuses a container if images made when it is stopped could not go to the registry of the
/// settings.
pub fn refuse_key(registry: &str, bundle: &Path, id: &str) -> Result<(), CreateError> {
    let Some(spec) = Spec::read(bundle).ok().filter(|_| !registry.is_empty()) else {
        return Ok(());
    };
    let Some(asked) = AtStop::of(&spec)? else {
        return Ok(());
    };
    match repository_of(registry, &spec, &asked.key(&spec, id)?) {
        Err(error @ NoRepository::Name { .. }) => Err(CreateError::Repository(error)),
        // Its namespace is checked when it matters.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn bundle(spec: &Value) -> TempDir {
        let bundle = tempfile::tempdir().unwrap();
        fs::write(bundle.path().join("config.json"), spec.to_string()).unwrap();
        bundle
    }

    fn specification(bundle: &TempDir) -> Value {
        let text = fs::read(bundle.path().join("config.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn what_the_container_says_itself_stays() {
        let own = json!({
            "annotations": {ANNOTATION: CHECKPOINTABLE},
            "process": {"args": ["x"], "env": ["A=1", "NCCL_NVLS_ENABLE=1"]}
        });
        let bundle = bundle(&own);
        prepare(bundle.path()).unwrap();
        let expected = json!([
            "A=1",
            "NCCL_NVLS_ENABLE=1",
            "NCCL_P2P_DISABLE=1",
            "NCCL_CUMEM_ENABLE=0",
            "NCCL_CUMEM_HOST_ENABLE=0",
            "NCCL_IB_DISABLE=1",
        ]);
        assert_eq!(specification(&bundle)["process"]["env"], expected);
        // As if a second container is made of the bundle.
        prepare(bundle.path()).unwrap();
        assert_eq!(specification(&bundle)["process"]["env"], expected);
        assert_eq!(specification(&bundle)["process"]["args"], json!(["x"]));
    }

    #[test]
    fn there_may_have_been_no_environment() {
        for process in [json!({}), json!({"env": null}), json!({"env": []})] {
            let annotations = json!({ANNOTATION: CHECKPOINTABLE});
            let bundle = bundle(&json!({"annotations": annotations, "process": process}));
            prepare(bundle.path()).unwrap();
            let spec = specification(&bundle);
            let variables = spec["process"]["env"].as_array().unwrap();
            assert_eq!(variables.len(), NCCL_APART.len() + 1, "{spec}");
        }
    }

    #[test]
    fn what_does_not_ask_or_is_no_specification_is_not_touched() {
        for spec in [
            json!({"process": {"env": ["A=1"]}}),
            json!({"annotations": null, "process": {}}),
            json!({"annotations": {ANNOTATION: CHECKPOINTABLE}, "process": 1}),
            json!({"annotations": {ANNOTATION: CHECKPOINTABLE}, "process": {"env": "A"}}),
            json!([]),
        ] {
            let bundle = bundle(&spec);
            prepare(bundle.path()).unwrap();
            assert_eq!(specification(&bundle), spec);
        }
        prepare(Path::new("/nonexistent")).unwrap();
    }

    #[test]
    fn a_hook_that_could_not_be_run_is_refused_when_there_is_time_to_mend_it() {
        let spec = json!({"annotations": {"io.stasis.hook.before-checkpoint": "[x"}});
        let said = prepare(bundle(&spec).path()).unwrap_err().to_string();
        assert!(said.ends_with("; nothing was created"), "{said}");
    }

    #[test]
    fn a_misspelt_annotation_is_refused_with_the_one_that_is_like_it() {
        for (given, meant) in [
            ("io.stasis.checkpiont", "io.stasis.checkpoint"),
            ("io.stasis.checkpoint-key", "io.stasis.checkpoint.key"),
            ("io.stasis.gpumap", "io.stasis.gpu-map"),
        ] {
            let bundle = bundle(&json!({"annotations": {given: "x"}}));
            let said = prepare(bundle.path()).unwrap_err().to_string();
            let expected = format!(
                "the annotation {given:?} of the container is unknown; did you mean {meant}? \
                 Nothing was created"
            );
            assert_eq!(said, expected);
        }
        let bundle = bundle(&json!({"annotations": {"io.stasis.restore": "x", "io.other": "y"}}));
        prepare(bundle.path()).unwrap();
    }

    #[test]
    fn another_value_is_refused_before_anything_is_written() {
        let spec = json!({"annotations": {ANNOTATION: "yes"}, "process": {}});
        let bundle = bundle(&spec);
        let said = prepare(bundle.path()).unwrap_err().to_string();
        assert!(
            said.contains("\"yes\" of the container is unknown"),
            "{said}"
        );
        assert_eq!(specification(&bundle), spec);
    }
}
