//! OCI create and run: sets variables in the environment of a container whose annotations ask for
//! them. The low-level runtime does all else.

use std::path::Path;

use crate::container::hooks::{Hooks, InvalidHook};
use crate::container::spec::annotation::{UnknownAnnotation, refuse_unknown};
use crate::container::spec::variables::{self, UnknownValue};
use crate::container::spec::{Spec, SpecError};

/// Why a container was not created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CreateError {
    #[error("{0}; nothing was created")]
    Unknown(#[from] UnknownValue),
    #[error("{0} Nothing was created")]
    Annotation(#[from] UnknownAnnotation),
    #[error("{0}; nothing was created")]
    Hook(#[from] InvalidHook),
    #[error("nothing was created: an annotation asks for variables in the container's environment")]
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
    let variables = variables::asked(&spec)?;
    match !variables.is_empty() && variables::set(&mut spec, &variables) {
        true => Ok(spec.write()?),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::container::spec::annotation::{NCCL as ANNOTATION, PEER_ACCESS};
    use crate::container::spec::variables::CHECKPOINTABLE;

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
            assert_eq!(variables.len(), 3, "{spec}");
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
        for annotation in [ANNOTATION, PEER_ACCESS] {
            let spec = json!({"annotations": {annotation: "yes"}, "process": {}});
            let bundle = bundle(&spec);
            let said = prepare(bundle.path()).unwrap_err().to_string();
            let expected = format!("{annotation}=\"yes\" of the container is unknown");
            assert!(said.contains(&expected), "{said}");
            assert_eq!(specification(&bundle), spec);
        }
    }

    #[test]
    fn settings_of_the_allocator_are_set_in_place() {
        let own = json!({
            "annotations": {PEER_ACCESS: CHECKPOINTABLE},
            "process": {"env": ["PYTORCH_ALLOC_CONF=backend:native", "A=1"]}
        });
        let bundle = bundle(&own);
        let expected = json!([
            "A=1",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_ALLOC_CONF=backend:native,expandable_segments:True",
        ]);
        // As if a second container is made of the bundle.
        for _ in 0..2 {
            prepare(bundle.path()).unwrap();
            assert_eq!(specification(&bundle)["process"]["env"], expected);
        }
    }
}
