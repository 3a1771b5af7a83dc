//! The low-level runtime's part of a checkpoint.

use std::io;
use std::path::Path;
use std::process::Output;

use rustix::fs::statvfs;
use stasis_gpu::cuda::gpu_use::CudaProcess;

use crate::bulk_memory::dump::MemoryDump;
use crate::container::Container;
use crate::container::mounted::{Files, Mounted, of_image};
use crate::context::Context;
use crate::error::low_level::LowLevelFailure;
use crate::error::{Failure, Refusal};
use crate::image::directory::NewImage;
use crate::image::pstree::{self, PstreeError};
use crate::image::{not_kept, tmpfs};
use crate::low_level::criu_log::CriuLog;
use crate::low_level::criu_plugins::Environment;
use crate::low_level::criu_stats::frozen_time;
use crate::low_level::{self, Ran};
use crate::operation::Operation;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;
use crate::request::{CheckpointRequest, LowLevelArgs, PreDump};

/// In bytes; less than CRIU's files of any container.
const NEXT_TO_NOTHING: u64 = 64 << 10;

/// One run of the low-level runtime and CRIU.
pub(crate) struct Dump<'a, 'm> {
    pub(crate) context: &'a Context,
    pub(crate) operation: &'a Operation,
    pub(crate) options: &'a CheckpointRequest,
    pub(crate) container: &'a Container,
    pub(crate) image: &'a NewImage,
    pub(crate) memory: &'a mut MemoryDump<'m>,
    /// CRIU's log, looked up before CRIU is started.
    pub(crate) log: CriuLog,
    /// The CUDA processes that the manifest lists.
    pub(crate) recorded: &'a [CudaProcess],
    /// The processes that `exec` started, which no image has.
    pub(crate) exec: &'a [CudaProcess],
}

/// The result of a dump that wrote no image.
#[derive(Debug)]
pub(crate) enum NotDumped {
    /// The low-level runtime was not started.
    Refused(Failure),
    /// The low-level runtime failed, or CRIU, or the script behind the dump refused it.
    Failed(Box<Ran>),
}

/// CRIU's log of a checkpoint that has not begun yet. Without a work directory runc and crun let
/// CRIU log to the image directory.
pub(crate) fn log_of(
    context: &Context,
    container: &Container,
    options: &CheckpointRequest,
) -> CriuLog {
    let flavor = context.low_level.flavor;
    CriuLog::before(flavor, container.spec(), options.work(), "dump.log")
}

impl Dump<'_, '_> {
    /// Runs the low-level runtime and CRIU to dump the container, and gives GPU contents back that
    /// were away. Returns the low-level runtime's output.
    pub(crate) fn run(
        &mut self,
        low_level_args: LowLevelArgs<'_>,
        timeline: &mut Timeline<'_>,
    ) -> Result<Output, NotDumped> {
        let context = self.context;
        let not_dumped: Vec<i32> = self.exec.iter().map(|each| each.pid).collect();
        let image = self.image.path();
        let mounted = self.mounted().map_err(NotDumped::Refused)?;
        let estimate = ProgressEstimate::dump(self.container, image, context.began);
        let (output, not_back) = timeline.time_moving("dump", estimate, || {
            let dumped = self.image.dump(self.options, |given| {
                let args = low_level_args(given);
                let limit = context.settings.deadlines.stalled();
                let environment = Environment {
                    not_dumped: &not_dumped,
                    mounted: &mounted,
                    ..self.memory.environment()
                };
                low_level::dump(
                    &context.low_level,
                    &args,
                    environment,
                    limit,
                    self.operation,
                )
            });
            let ran = dumped
                .map_err(Failure::start(&context.low_level))
                .map_err(NotDumped::Refused)?;
            if ran.output.status.success() {
                return Ok((ran.output, self.memory.dumped()));
            }
            Err(NotDumped::Failed(Box::new(ran)))
        })?;
        if let Some(why) = not_back {
            timeline.note(format!("GPU contents could not be given back yet: {why}"));
        }
        let is_whole = self.options.pre_dump == PreDump::No;
        if is_whole && !image.join(not_kept::FILE_NAME).exists() {
            timeline.note("what CRIU does not keep could not be put into the image");
        }
        let frozen = frozen_time(self.options.work());
        timeline.stop.frozen_seconds = frozen.map(|time| time.as_secs_f64());
        Ok(output)
    }

    /// The directories whose files the image carries as well, or lists.
    ///
    /// # Errors
    /// [`Refusal::Directory`]: one has files that end, and CRIU starts no program to store them.
    fn mounted(&self) -> Result<Vec<Mounted>, Failure> {
        let failed = |path: &Path, source| Refusal::Directory {
            what: "the files of the container's mounts for its image, in",
            path: path.to_owned(),
            source,
        };
        let all = of_image(self.container, self.image.directory());
        if self.memory.environment().configuration.is_some() {
            return Ok(all);
        }
        for ending in all.iter().filter(|mounted| mounted.files == Files::End) {
            let source = &ending.source;
            if !ending.is_empty().map_err(|error| failed(source, error))? {
                let reason = "CRIU cannot be told of the program that puts them there";
                return Err(failed(source, io::Error::other(reason)).into());
            }
        }
        Ok(Vec::new())
    }

    /// Verifies that the image has all saved processes ([`pstree::verify`]) and the contents of
    /// each tmpfs ([`tmpfs::verify`]).
    ///
    /// # Errors
    /// [`PstreeError`]: the image is to be given up.
    pub(crate) fn verify(&self) -> Result<(), PstreeError> {
        let image = self.image.path();
        let verified = pstree::verify(image, self.recorded, self.exec);
        verified
            .and_then(|()| tmpfs::verify(image))
            .inspect_err(|_| self.image.doubt())
    }

    /// The failure of the low-level runtime. Keeps CRIU's log.
    pub(crate) fn low_level_failure(&self, ran: &Ran) -> Box<LowLevelFailure> {
        let (context, options) = (self.context, self.options);
        Box::new(LowLevelFailure {
            program: format!("{} checkpoint", low_level::name(&context.low_level)),
            status: ran.output.status,
            hung: ran.hung.clone(),
            stderr: String::from_utf8_lossy(&ran.output.stderr).into_owned(),
            log: self.log.found(context, &options.id),
            astray: self.log.astray(),
            full: is_full(&options.image_path).then(|| options.image_path.clone()),
        })
    }
}

/// Whether the file system is full: then CRIU cannot log its error either.
fn is_full(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|now| now.f_bavail.saturating_mul(now.f_frsize) < NEXT_TO_NOTHING)
}
