//! The containers that use a GPU, as `stasis ps` finds them.

use std::time::UNIX_EPOCH;

use stasis_host::time::parsed;
use stasis_locate::engine::Engine;

use super::text::Family;
use crate::ps::row::Row;
use crate::ps::state::ContainerState;

/// A container as DCGM's exporter and the kubelet name it.
struct Named<'r> {
    id: &'r str,
    engine: String,
    namespace: &'r str,
    pod: &'r str,
    container: &'r str,
}

pub(super) fn families(rows: &[Row]) -> Vec<Family> {
    vec![
        by_state(rows),
        states(rows),
        gpu_memory(rows),
        checkpointable(rows),
        last_checkpoints(rows),
    ]
}

fn by_state(rows: &[Row]) -> Family {
    let mut family = Family::gauge(
        "stasis_containers",
        "Containers that use a GPU, by their state.",
    );
    for state in ContainerState::ALL {
        let of_it = rows.iter().filter(|row| row.state == *state).count();
        family.add(&[("state", state.name())], of_it as f64);
    }
    family
}

fn states(rows: &[Row]) -> Family {
    let mut family = Family::gauge(
        "stasis_container_state",
        "1 for the state that a container is in.",
    );
    for row in rows {
        let labels = Named::of(row);
        family.add(&labels.and(&[("state", row.state.name())]), 1.0);
    }
    family
}

fn gpu_memory(rows: &[Row]) -> Family {
    let mut family = Family::gauge(
        "stasis_container_gpu_memory_bytes",
        "What a container holds on a GPU, or needs to come back to it.",
    );
    for row in rows {
        let labels = Named::of(row);
        for used in &row.gpus {
            let uuid = used.uuid.to_string();
            let index = used.index.map(|index| index.to_string());
            let gpu = [
                ("gpu", index.as_deref().unwrap_or_default()),
                ("UUID", uuid.as_str()),
            ];
            family.add(&labels.and(&gpu), used.memory_bytes as f64);
        }
    }
    family
}

fn checkpointable(rows: &[Row]) -> Family {
    let mut family = Family::gauge(
        "stasis_container_checkpointable",
        "Whether a checkpoint would begin now; absent while unknown.",
    );
    for row in rows {
        if let Some(would) = row.checkpointable {
            family.add(&Named::of(row).and(&[]), f64::from(u8::from(would)));
        }
    }
    family
}

fn last_checkpoints(rows: &[Row]) -> Family {
    let mut family = Family::gauge(
        "stasis_container_last_checkpoint_timestamp_seconds",
        "When the last checkpoint of a container began that did not fail.",
    );
    for row in rows {
        let began = row.last_image.as_ref().map(|image| parsed(&image.created));
        let since = began
            .flatten()
            .map(|began| began.duration_since(UNIX_EPOCH));
        if let Some(Ok(since)) = since {
            family.add(&Named::of(row).and(&[]), since.as_secs_f64());
        }
    }
    family
}

impl<'r> Named<'r> {
    fn of(row: &'r Row) -> Self {
        Self::new(&row.id, row.engine, row.name.as_deref())
    }

    fn new(id: &'r str, engine: Option<Engine>, name: Option<&'r str>) -> Self {
        let whole = name.unwrap_or(id);
        let parts: Vec<&str> = whole.split('/').collect();
        let (namespace, pod, container) = match (engine, parts.as_slice()) {
            (Some(Engine::Cri | Engine::CriO), [namespace, pod, container]) => {
                (*namespace, *pod, *container)
            }
            _ => ("", "", whole),
        };
        Self {
            id,
            engine: engine.map_or_else(String::new, |engine| engine.to_string()),
            namespace,
            pod,
            container,
        }
    }

    fn and<'l>(&'l self, more: &[(&'l str, &'l str)]) -> Vec<(&'l str, &'l str)> {
        let own = [
            ("id", self.id),
            ("engine", &self.engine),
            ("namespace", self.namespace),
            ("pod", self.pod),
            ("container", self.container),
        ];
        [&own, more].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pods_are_taken_apart_and_others_left_whole() {
        let parts = |engine, name| {
            let named = Named::new("c1", engine, name);
            [named.namespace, named.pod, named.container].map(str::to_owned)
        };
        let name = Some("ml/train-0/main");
        assert_eq!(parts(Some(Engine::Cri), name), ["ml", "train-0", "main"]);
        assert_eq!(parts(Some(Engine::CriO), name), ["ml", "train-0", "main"]);
        assert_eq!(parts(Some(Engine::Docker), Some("job")), ["", "", "job"]);
        assert_eq!(
            parts(Some(Engine::Docker), Some("a/b/c")),
            ["", "", "a/b/c"]
        );
        assert_eq!(parts(Some(Engine::Cri), None), ["", "", "c1"]);
        assert_eq!(parts(None, None), ["", "", "c1"]);
    }
}
