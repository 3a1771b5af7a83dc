//! The map from every GPU of an image to one of the new container's GPUs.

use std::collections::BTreeMap;

use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::nvml::Gpu;

use crate::container::spec::Spec;
use crate::container::spec::annotation::GPU_MAP as ANNOTATION;
use crate::error::admission::AdmissionError;

/// The annotation of the new container has a map: "OLD=NEW,OLD=NEW".
const IN_ANNOTATION: &str = "the annotation io.stasis.gpu-map";
const IN_SETTINGS: &str = "the settings (restore.gpu_map)";

/// The requested pairs (old, new).
#[derive(Debug, Default)]
pub(crate) struct RequestedMap {
    origin: &'static str,
    pairs: BTreeMap<GpuUuid, GpuUuid>,
}

impl RequestedMap {
    /// The map of the new container's annotation, or else of the settings.
    ///
    /// # Errors
    /// [`AdmissionError::Map`] for a map that cannot be parsed.
    pub(crate) fn of(
        spec: &Spec,
        settings: &BTreeMap<String, String>,
    ) -> Result<Self, AdmissionError> {
        let Some(text) = spec.annotation(ANNOTATION) else {
            return Self::of_settings(settings);
        };
        let mut pairs = Vec::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let pair = pair.split_once('=').ok_or_else(|| AdmissionError::Map {
                origin: IN_ANNOTATION,
                what: format!("{pair:?} is not of the form OLD=NEW"),
            })?;
            pairs.push(pair);
        }
        Self::parse(IN_ANNOTATION, pairs.into_iter())
    }

    /// The map of the settings.
    pub(super) fn of_settings(settings: &BTreeMap<String, String>) -> Result<Self, AdmissionError> {
        let pairs = settings
            .iter()
            .map(|(old, new)| (old.as_str(), new.as_str()));
        Self::parse(IN_SETTINGS, pairs)
    }

    fn parse<'t>(
        origin: &'static str,
        texts: impl Iterator<Item = (&'t str, &'t str)>,
    ) -> Result<Self, AdmissionError> {
        let bad = |what| AdmissionError::Map { origin, what };
        let uuid = |text: &str| text.trim().parse::<GpuUuid>();
        let mut pairs = BTreeMap::new();
        for (old, new) in texts {
            let old = uuid(old).map_err(|error| bad(error.to_string()))?;
            let new = uuid(new).map_err(|error| bad(error.to_string()))?;
            if pairs.values().any(|taken| *taken == new) {
                return Err(bad(format!("{new} would replace two GPUs")));
            }
            if pairs.insert(old, new).is_some() {
                return Err(bad(format!("{old} is named twice")));
            }
        }
        Ok(Self { origin, pairs })
    }

    fn bad(&self, what: String) -> AdmissionError {
        AdmissionError::Map {
            origin: self.origin,
            what,
        }
    }
}

/// Chooses for each `needed` GPU one of the same product among the `given` ones: the requested one,
/// else itself, else the first of its product that is still free. The pairs (old, new) are in the
/// order of `needed`.
///
/// A request for a GPU that is not needed is ignored: settings are for all containers of a machine,
/// and a pod's annotation is for all containers of the pod.
pub(crate) fn choose(
    needed: &[Gpu],
    given: &[Gpu],
    requested: &RequestedMap,
) -> Result<Vec<(GpuUuid, GpuUuid)>, AdmissionError> {
    let mut chosen = BTreeMap::new();
    for gpu in needed {
        if let Some(new) = requested.pairs.get(&gpu.uuid) {
            check_requested(gpu, *new, given, requested)?;
            chosen.insert(gpu.uuid, *new);
        }
    }
    for gpu in needed {
        let itself = given.iter().any(|given| given.uuid == gpu.uuid);
        let taken = chosen.values().any(|new| *new == gpu.uuid);
        if itself && !taken {
            chosen.entry(gpu.uuid).or_insert(gpu.uuid);
        }
    }
    for gpu in needed {
        if !chosen.contains_key(&gpu.uuid) {
            let new = given.iter().find(|given| {
                same_chip(gpu, given) && !chosen.values().any(|new| *new == given.uuid)
            });
            let new = new.ok_or_else(|| no_gpu(gpu, given))?;
            chosen.insert(gpu.uuid, new.uuid);
        }
    }
    let pairs = needed
        .iter()
        .filter_map(|gpu| Some((gpu.uuid, *chosen.get(&gpu.uuid)?)));
    Ok(pairs.collect())
}

/// Pairs for the machine's other GPUs, which the driver may have found at `cuInit` without using
/// them: its map must name these GPUs too, and it does not report which they are (measured on
/// driver 580.159: a process that `CUDA_VISIBLE_DEVICES` had limited to one GPU of two was restored
/// with both named, and refused with one).
pub(crate) fn complete(
    pairs: &[(GpuUuid, GpuUuid)],
    theirs: &[Gpu],
    ours: &[Gpu],
) -> Vec<(GpuUuid, GpuUuid)> {
    let mut free: Vec<&Gpu> = ours.iter().collect();
    free.retain(|gpu| !pairs.iter().any(|(_, new)| *new == gpu.uuid));
    let mut others: Vec<&Gpu> = theirs.iter().collect();
    others.retain(|gpu| !pairs.iter().any(|(old, _)| *old == gpu.uuid));
    let mut added = Vec::new();
    for old in others {
        let itself = free.iter().position(|gpu| gpu.uuid == old.uuid);
        let alike = || free.iter().position(|gpu| same_chip(old, gpu));
        if let Some(position) = itself.or_else(alike) {
            added.push((old.uuid, free.remove(position).uuid));
        }
    }
    added
}

fn check_requested(
    old: &Gpu,
    new: GpuUuid,
    given: &[Gpu],
    requested: &RequestedMap,
) -> Result<(), AdmissionError> {
    let Some(found) = given.iter().find(|gpu| gpu.uuid == new) else {
        return Err(requested.bad(format!(
            "the new container is not given {new}, only {}",
            list(given)
        )));
    };
    if !same_chip(old, found) {
        return Err(requested.bad(format!(
            "{new} ({}) is not of the kind of {} ({})",
            found.name, old.uuid, old.name
        )));
    }
    Ok(())
}

/// Whether two GPUs are the same product. Some products have one name but different amounts of
/// memory (by a quarter or more); error correction, which can be switched, takes a sixteenth of it.
fn same_chip(a: &Gpu, b: &Gpu) -> bool {
    a.uuid == b.uuid
        || (a.name == b.name && a.memory_bytes.abs_diff(b.memory_bytes) <= a.memory_bytes / 8)
}

fn no_gpu(gpu: &Gpu, given: &[Gpu]) -> AdmissionError {
    AdmissionError::NoGpu {
        uuid: gpu.uuid,
        name: gpu.name.clone(),
        given: list(given),
    }
}

/// A list of GPUs for a message.
pub(crate) fn list(gpus: &[Gpu]) -> String {
    let gpus: Vec<String> = gpus
        .iter()
        .map(|gpu| format!("{} ({})", gpu.uuid, gpu.name))
        .collect();
    if gpus.is_empty() {
        "none".to_owned()
    } else {
        gpus.join(", ")
    }
}

#[cfg(test)]
mod tests;
