//! Variables that annotations of a container ask for, so that it can be checkpointed. They must be
//! set when the program starts, hours before anyone reads a refusal.

use serde_json::Value;

use crate::container::spec::Spec;
use crate::container::spec::annotation::{NCCL, NO_PEER_ACCESS, PEER_ACCESS};

/// The value that asks for variables.
pub(crate) const CHECKPOINTABLE: &str = "checkpointable";

/// The parts of NCCL that cannot be restored: host memory of the driver, which the processes' own
/// threads may touch at any time, and multicast. Memory that ranks import from each other over
/// NVLink is given up and imported again (`gpu_path/imports`; two H200, driver 580.159, NCCL 2.28).
/// Open RDMA devices are refused, too (`rdma`): NCCL opens those that it finds.
const FOR_NCCL: [(&str, &str); 3] = [
    ("NCCL_CUMEM_HOST_ENABLE", "0"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("NCCL_IB_DISABLE", "1"),
];

/// PyTorch's allocator has its settings in either of them; a newer PyTorch prefers the latter.
const ALLOCATOR: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Allocations of at most 20 MiB that peers map, in place of large ones with peer access, which the
/// driver loses from 512 MiB on (`preflight/sharing/peer_access.rs`).
const SEGMENTS: &str = "expandable_segments";

/// An annotation that asks for something unknown.
#[derive(Debug, thiserror::Error)]
#[error("the annotation {annotation}={given:?} of the container is unknown; {known}")]
pub struct UnknownValue {
    annotation: &'static str,
    given: String,
    known: &'static str,
}

/// Returns the variables that the annotations ask for, with their values. Variables of the
/// container stay, but for the list of the allocator's settings, which gets one more.
pub(in crate::container) fn asked(
    spec: &Spec,
) -> Result<Vec<(&'static str, String)>, UnknownValue> {
    let mut variables = Vec::new();
    match spec.annotation(NCCL) {
        None => {}
        Some(CHECKPOINTABLE) => variables.extend(for_nccl(spec)),
        Some(given) => return Err(unknown(NCCL, given, "its value is \"checkpointable\"")),
    }
    match spec.annotation(PEER_ACCESS) {
        None | Some(NO_PEER_ACCESS) => {}
        Some(CHECKPOINTABLE) => variables.extend(for_the_allocator(spec)),
        Some(given) => {
            let known = "its values are \"checkpointable\" and \"none\"";
            return Err(unknown(PEER_ACCESS, given, known));
        }
    }
    Ok(variables)
}

fn unknown(annotation: &'static str, given: &str, known: &'static str) -> UnknownValue {
    let given = given.to_owned();
    UnknownValue {
        annotation,
        given,
        known,
    }
}

fn for_nccl(spec: &Spec) -> impl Iterator<Item = (&'static str, String)> {
    let missing = |(name, _): &(&str, &str)| spec.environment(name).is_none();
    let variables = FOR_NCCL.into_iter().filter(missing);
    variables.map(|(name, value)| (name, value.to_owned()))
}

/// A variable that mentions the setting stays. Without a value of its own, the newer one takes the
/// older one's, which PyTorch reads then.
fn for_the_allocator(spec: &Spec) -> Vec<(&'static str, String)> {
    let [older, newer] = ALLOCATOR.map(|name| spec.environment(name));
    let mentions = |value: Option<&str>| value.is_some_and(|value| value.contains(SEGMENTS));
    let with_segments = |value: Option<&str>| match value.map(|value| value.trim_end_matches(',')) {
        Some(value) if !value.is_empty() => format!("{value},{SEGMENTS}:True"),
        _ => format!("{SEGMENTS}:True"),
    };
    let mut variables = Vec::new();
    if !mentions(older.or(newer)) {
        variables.push((ALLOCATOR[0], with_segments(older)));
    }
    if !mentions(newer.or(older)) {
        variables.push((ALLOCATOR[1], with_segments(newer.or(older))));
    }
    variables
}

/// Sets variables in the specification; returns whether it has an environment to set them in.
pub(in crate::container) fn set(spec: &mut Spec, variables: &[(&str, String)]) -> bool {
    let process = spec.tree_mut().get_mut("process");
    let Some(process) = process.filter(|process| process.is_object()) else {
        return false;
    };
    if process.get("env").is_none_or(Value::is_null) {
        process["env"] = Value::Array(Vec::new());
    }
    let Some(environment) = process["env"].as_array_mut() else {
        return false;
    };
    for (name, value) in variables {
        let is_it = |variable: &Value| {
            let variable = variable.as_str().and_then(|text| text.split_once('='));
            variable.is_some_and(|(found, _)| found == *name)
        };
        environment.retain(|variable| !is_it(variable));
        environment.push(format!("{name}={value}").into());
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The variables of a container with this environment that asks for peer access.
    fn allocator(environment: &[&str]) -> Vec<(&'static str, String)> {
        let bundle = tempfile::tempdir().unwrap();
        let spec = json!({
            "annotations": {PEER_ACCESS: CHECKPOINTABLE},
            "process": {"env": environment}
        });
        std::fs::write(bundle.path().join("config.json"), spec.to_string()).unwrap();
        asked(&Spec::read(bundle.path()).unwrap()).unwrap()
    }

    #[test]
    fn settings_of_the_allocator_are_merged() {
        let [old, new] = ALLOCATOR;
        let segments = "expandable_segments:True";
        let own = "max_split_size_mb:128";
        let both = format!("{own},{segments}");
        for (environment, expected) in [
            (vec![], [segments, segments]),
            (vec![format!("{old}=")], [segments, segments]),
            (vec![format!("{old}={own}")], [&both, &both]),
            (vec![format!("{new}={own}")], [segments, &both]),
        ] {
            let environment: Vec<&str> = environment.iter().map(String::as_str).collect();
            let [older, newer] = allocator(&environment).try_into().unwrap();
            let expected = expected.map(str::to_owned);
            assert_eq!(
                [older, newer],
                [(old, expected[0].clone()), (new, expected[1].clone())]
            );
        }
        for own in [
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
            "PYTORCH_ALLOC_CONF=a:1,expandable_segments:True",
        ] {
            assert_eq!(allocator(&[own]), [], "{own}");
        }
        // The newer one alone counts for a newer PyTorch.
        let both = [format!("{old}={segments}"), format!("{new}=a:1,")];
        let both = both.each_ref().map(String::as_str);
        assert_eq!(allocator(&both), [(new, format!("a:1,{segments}"))]);
    }
}
