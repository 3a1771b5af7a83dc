//! The report's part on room, and on GPU contents that go through the driver and CRIU.

use stasis_engine::bulk_memory::plugin;
use stasis_engine::checkpoint::captured::Captured;
use stasis_engine::checkpoint::disk_space::MostWritten;
use stasis_engine::checkpoint::plan::judge::admit_to_host;
use stasis_engine::checkpoint::route::{Facts, GpuContentsRoute};
use stasis_engine::container::Container;
use stasis_engine::container::host_memory::HostRoom;
use stasis_engine::context::Context;
use stasis_engine::error::Refusal;
use stasis_engine::preflight::capabilities::Capabilities;
use stasis_engine::request::Resumes;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::gpu_path::why_not_passed;
use stasis_gpu::ledger::{Reservation, WaitLimit};

use super::CheckReport;

impl CheckReport {
    /// Checks the room in host memory, and on the disk of contents that lie apart from images. The
    /// image's disk is not known here.
    pub(super) fn ask_for_room(
        &mut self,
        context: &Context,
        container: &Container,
        members: &ProcessStates,
        captured: &Captured,
        has: &Capabilities,
    ) -> Result<(), Refusal> {
        let (settings, bytes) = (&context.settings, captured.to_host_bytes);
        let asking = Reservation::only_asking(&settings.paths.state_dir);
        let room = HostRoom(&asking, WaitLimit::none());
        let memory = &settings.gpu_contents;
        let plugin = plugin::usable(memory, has);
        let limits = &container.memory_of(members.iter().map(|(process, _)| process))?;
        let route = GpuContentsRoute::decide(&Facts {
            settings,
            plugin: plugin.as_ref().map(drop),
            limits,
            captured,
            // Nothing in this report depends on it.
            resumes: Resumes::Later,
            no_file: &|process| why_not_passed(settings, process),
        });
        let by_criu = route.by_criu(captured);
        self.by_criu_bytes = by_criu.as_ref().map_or(0, |by_criu| by_criu.bytes);
        // Without a CRIU nothing moves GPU contents.
        let by_criu = by_criu.filter(|_| has.criu.usable().is_ok());
        self.notes
            .extend(by_criu.map(|by_criu| by_criu.to_string()));
        admit_to_host(limits, captured, &route, 0, room)?;
        let most = MostWritten::of(memory, container, bytes, self.by_criu_bytes)?;
        Ok(most.admit_apart(settings)?)
    }

    /// Returns the bytes that its processes hold on GPUs.
    pub(crate) fn gpu_bytes(&self) -> u64 {
        let of_gpus = self.processes.iter().flat_map(|process| &process.gpus);
        let bytes = of_gpus.map(|gpu| gpu.memory_bytes.unwrap_or_default());
        bytes.fold(0, u64::saturating_add)
    }
}
