//! Images for people.

use comfy_table::Cell;
use stasis_engine::image::manifest::Manifest;
use stasis_gpu::cuda::gpu_use::{GpuBytes, add};
use stasis_memory_store::PacksIn;

use super::ImageDescription;
use crate::answer::amount::size;
use crate::answer::name;
use crate::answer::table::{cell, or_none, table};
use crate::images::table::origin;

/// Points to CRIU's own files.
const OF_CRIU: &str = "CRIU's own files: crit and checkpointctl read them";

impl ImageDescription {
    /// Formats titles and facts for people.
    pub(super) fn summary(&self) -> String {
        let (manifest, elsewhere) = (self.manifest.as_ref(), self.elsewhere.as_ref());
        let facts = [
            ("image", Some(self.image.display().to_string())),
            ("digest", elsewhere.map(|there| there.digest.clone())),
            ("subject", elsewhere.and_then(|there| there.subject.clone())),
            ("container", self.container.clone()),
            ("name", self.name.clone()),
            ("engine", self.engine.map(|engine| engine.to_string())),
            ("group", self.group.as_ref().map(|names| names.join(", "))),
            ("made from", self.container_image.clone()),
            ("created", manifest.map(|said| said.created.clone())),
            ("written by", manifest.map(|said| said.written_by.clone())),
            ("driver", manifest.map(|said| said.driver_version.clone())),
        ];
        let facts = facts.into_iter();
        let mut lines: Vec<(&str, String)> = facts
            .filter_map(|(title, fact)| Some((title, fact?)))
            .collect();
        if let Some(manifest) = manifest {
            lines.extend(gpus(manifest).map(|gpu| ("GPU", gpu)));
            let processes = manifest.processes.len();
            lines.push(("processes", format!("{processes} with GPU state")));
            lines.push(("GPU memory", size(self.gpu_bytes)));
        }
        if let Some(bytes) = self.bulk_bytes {
            let memory = manifest.and_then(|manifest| manifest.memory.as_ref());
            let place = match memory.map(|memory| memory.packs_in) {
                Some(PacksIn::Directory) if elsewhere.is_none() => "apart from the image",
                _ => "in the image",
            };
            lines.push(("GPU contents", format!("{}, {place}", size(bytes))));
        }
        lines.push(("all files", size(self.bytes)));
        let places = self.origin.iter().flat_map(origin);
        lines.extend(places.map(|place| ("origin", place)));
        if let Some(there) = elsewhere {
            let archive = if there.archive { "yes" } else { "no" };
            lines.push(("archive", archive.to_owned()));
            let said = there.annotations.iter();
            lines.extend(said.map(|(name, said)| ("annotation", format!("{name}={said}"))));
        }
        lines.push(("more", OF_CRIU.to_owned()));
        let line = |(title, fact): &(&str, String)| format!("{title:<12} {}", name(fact));
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Formats the lists of its manifest.
    pub(super) fn details(&self) -> String {
        let Some(manifest) = &self.manifest else {
            return String::new();
        };
        let processes = manifest.processes.iter().map(|process| {
            let held = process.gpu_bytes().into_values();
            let held = held.fold(0, u64::saturating_add);
            [
                cell(process.pid.to_string()),
                cell(size(held)),
                cell(&process.name),
            ]
        });
        let phases = manifest.phases.iter().map(|phase| {
            [
                cell(&phase.name),
                cell(format!("{:.3}", phase.seconds)),
                or_none(phase.bytes.map(size)),
            ]
        });
        let files = manifest.files.iter().flatten().map(|file| {
            [
                cell(&file.name),
                cell(size(file.bytes)),
                or_none(file.blake3.as_ref()),
            ]
        });
        [
            drawn(["PID", "GPU MEMORY", "NAME"], processes),
            drawn(["PHASE", "SECONDS", "MOVED"], phases),
            drawn(["FILE", "SIZE", "BLAKE3"], files),
        ]
        .concat()
    }
}

fn drawn(titles: [&str; 3], rows: impl Iterator<Item = [Cell; 3]>) -> String {
    let rows = rows.map(Vec::from).collect();
    format!("\n\n{}", table(&titles.map(|title| (title, 0)), rows))
}

/// Describes the GPUs that its processes used, and the bytes that they held there.
fn gpus(manifest: &Manifest) -> impl Iterator<Item = String> {
    let mut held = GpuBytes::new();
    for process in &manifest.processes {
        add(&mut held, &process.gpu_bytes());
    }
    manifest.used_gpus().into_iter().map(move |gpu| {
        let held = held.get(&gpu.uuid).copied().unwrap_or_default();
        let (held, total) = (size(held), size(gpu.memory_bytes));
        format!("{} ({}), {held} of {total}", gpu.uuid, gpu.name)
    })
}
