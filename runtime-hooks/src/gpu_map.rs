//! Which GPU takes the place of which: that of the new container's GPUs for every GPU of an image.

use std::collections::BTreeMap;

use crate::cuda::GpuUuid;
use crate::denial::Denial;
use crate::gpu::Gpu;
use crate::spec::Spec;

/// The annotation of the new container that gives a map: "OLD=NEW,OLD=NEW".
pub(crate) const ANNOTATION: &str = "io.stasis.gpu-map";
const IN_ANNOTATION: &str = "the annotation io.stasis.gpu-map";
const IN_SETTINGS: &str = "the settings (restore.gpu_map)";

/// The pairs (old, new) that somebody wants.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    whence: &'static str,
    pairs: BTreeMap<GpuUuid, GpuUuid>,
}

impl Wish {
    /// The map that the new container's annotation gives, else that of the settings.
    ///
    /// # Errors
    /// [`Denial::Map`] for one that cannot be understood.
    pub(crate) fn of(spec: &Spec, settings: &BTreeMap<String, String>) -> Result<Self, Denial> {
        let Some(text) = spec.annotation(ANNOTATION) else {
            let pairs = settings
                .iter()
                .map(|(old, new)| (old.as_str(), new.as_str()));
            return Self::parse(IN_SETTINGS, pairs);
        };
        let mut pairs = Vec::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let pair = pair.split_once('=').ok_or_else(|| Denial::Map {
                whence: IN_ANNOTATION,
                what: format!("{pair:?} is not of the form OLD=NEW"),
            })?;
            pairs.push(pair);
        }
        Self::parse(IN_ANNOTATION, pairs.into_iter())
    }

    fn parse<'t>(
        whence: &'static str,
        texts: impl Iterator<Item = (&'t str, &'t str)>,
    ) -> Result<Self, Denial> {
        let bad = |what| Denial::Map { whence, what };
        let uuid = |text: &str| text.trim().parse::<GpuUuid>();
        let mut pairs = BTreeMap::new();
        for (old, new) in texts {
            let old = uuid(old).map_err(|error| bad(error.to_string()))?;
            let new = uuid(new).map_err(|error| bad(error.to_string()))?;
            if pairs.values().any(|taken| *taken == new) {
                return Err(bad(format!("{new} is to take the place of two GPUs")));
            }
            if pairs.insert(old, new).is_some() {
                return Err(bad(format!("{old} is named twice")));
            }
        }
        Ok(Self { whence, pairs })
    }

    fn bad(&self, what: String) -> Denial {
        Denial::Map {
            whence: self.whence,
            what,
        }
    }
}

/// A GPU of each `needed` one's kind among those `given`: the wished one, else itself, else the
/// first of its kind that no other takes. The pairs (old, new) are in the order of `needed`.
///
/// A wish for a GPU that is not needed is passed over: settings are for all containers of a
/// machine, and a pod's annotation is for all of its.
///
/// # Errors
/// [`Denial`].
pub(crate) fn choose(
    needed: &[Gpu],
    given: &[Gpu],
    wish: &Wish,
) -> Result<Vec<(GpuUuid, GpuUuid)>, Denial> {
    let mut chosen = BTreeMap::new();
    for gpu in needed {
        if let Some(new) = wish.pairs.get(&gpu.uuid) {
            check_wish(gpu, *new, given, wish)?;
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

/// Pairs for the machine's other GPUs, which may have been seen by the driver at `cuInit` without
/// ever being used: it wants a place for each of those, too, and tells nobody which they are
/// (measured on driver 580.159: a process that `CUDA_VISIBLE_DEVICES` had limited to one GPU of two
/// was restored with both named, and refused with one).
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

fn check_wish(old: &Gpu, new: GpuUuid, given: &[Gpu], wish: &Wish) -> Result<(), Denial> {
    let Some(found) = given.iter().find(|gpu| gpu.uuid == new) else {
        return Err(wish.bad(format!(
            "the new container is not given {new}, only {}",
            list(given)
        )));
    };
    if !same_chip(old, found) {
        return Err(wish.bad(format!(
            "{new} ({}) is not of the kind of {} ({})",
            found.name, old.uuid, old.name
        )));
    }
    Ok(())
}

/// The same product. Some are sold under one name with different amounts of memory (by a quarter
/// or more); error correction, which can be switched, takes a sixteenth of it.
fn same_chip(a: &Gpu, b: &Gpu) -> bool {
    a.uuid == b.uuid
        || (a.name == b.name && a.memory_bytes.abs_diff(b.memory_bytes) <= a.memory_bytes / 8)
}

fn no_gpu(gpu: &Gpu, given: &[Gpu]) -> Denial {
    Denial::NoGpu {
        uuid: gpu.uuid,
        name: gpu.name.clone(),
        given: list(given),
    }
}

/// GPUs for a message.
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
