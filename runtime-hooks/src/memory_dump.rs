//! The bulk memory of a checkpoint: ordered from our CRIU plugin before the dump, looked at after it.

use std::fs;
use std::path::Path;

use stasis_config::MemoryTier;
use stasis_memory_store::{After, Compression, DumpOrder, INDEX_FILE, StoreError, Tier};

use crate::container::Container;
use crate::criu_plugins::Environment;
use crate::engine::Engine;
use crate::error::Failure;
use crate::gauge::anonymous_of;
use crate::huge_pages::HugePages;
use crate::invocation::{AfterDump, CheckpointOptions};
use crate::manifest::StoredMemory;
use crate::memory_in_ram;
use crate::memory_order::{self, OrderFiles, new_image_id};
use crate::memory_plugin::Plugins;
use crate::memory_stores::{self, Origin, Stores};
use crate::operation::Operation;
use crate::timeline::Timeline;
use crate::write_behind::WriteBehind;

/// What our CRIU plugin says of a dump or a restore that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryFailure {
    /// What failed, if it was the plugin.
    pub error: Option<String>,
    /// What it had taken of tasks, or given to them, bytes; `None` if it did not come to say.
    pub moved: Option<u64>,
    /// Why tasks are still without memory that was taken of them, if they are.
    pub not_returned: Option<String>,
}

/// What is done about bulk memory in one dump.
#[derive(Debug)]
pub(crate) struct MemoryDump<'a> {
    engine: &'a Engine,
    options: &'a CheckpointOptions,
    plugins: &'a Plugins,
    ordered: Option<(DumpOrder, OrderFiles)>,
}

impl MemoryFailure {
    /// One in which the plugin was not there.
    fn without_plugin() -> Self {
        Self {
            moved: Some(0),
            ..Self::default()
        }
    }

    /// Whether it failed as it would have without the plugin.
    pub(crate) fn is_without_part(&self) -> bool {
        self.error.is_none() && self.moved == Some(0)
    }
}

impl<'a> MemoryDump<'a> {
    /// Orders it. What an earlier checkpoint left in the image directory goes.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn order(
        engine: &'a Engine,
        options: &'a CheckpointOptions,
        plugins: &'a Plugins,
        container: &Container,
        operation: &Operation,
        timeline: &mut Timeline<'_>,
    ) -> Result<Self, Failure> {
        remove_from(&options.image_path)?;
        let ordered = match &plugins.memory {
            Ok(()) => {
                let files = OrderFiles::of(operation.directory());
                let order = dump_order(engine, options, container, &files, timeline)?;
                files.write(&order)?;
                Some((order, files))
            }
            Err(why) => {
                if let Some(note) = why.note() {
                    timeline.note(note);
                }
                None
            }
        };
        Ok(Self {
            engine,
            options,
            plugins,
            ordered,
        })
    }

    /// What CRIU is told.
    pub(crate) fn environment(&self) -> Environment<'_> {
        Environment {
            plugins: &self.plugins.directory,
            memory_order: self
                .ordered
                .as_ref()
                .map(|(_, files)| files.order.as_path()),
        }
    }

    /// Where the plugin tells how far it has come.
    pub(crate) fn progress(&self) -> Option<&Path> {
        self.ordered
            .as_ref()
            .map(|(_, files)| files.progress.as_path())
    }

    /// What the manifest says of it, if the plugin does as it was told.
    pub(crate) fn record(&self) -> Option<StoredMemory> {
        let (order, _) = self.ordered.as_ref()?;
        Some(StoredMemory {
            image_id: order.image_id,
            tier: order.tier,
            boot_id: (order.tier == Tier::Ram).then(boot_id).flatten(),
        })
    }

    /// Huge pages for memory that may have to come back: for that of a container that goes on, or whose dump fails.
    pub(crate) fn huge_pages(&self) -> Option<HugePages> {
        let settings = &self.engine.settings;
        if self.ordered.is_none() || !settings.gpu_checkpoint.huge_pages {
            return None;
        }
        // Only speed depends on them.
        HugePages::switch_on(&settings.paths.state_dir).ok()
    }

    /// After a dump that succeeded: what the manifest has to say of bulk memory.
    pub(crate) fn succeeded(&self, timeline: &mut Timeline<'_>) -> Option<StoredMemory> {
        let (order, files) = self.ordered.as_ref()?;
        let report = files.report();
        let has_run = report.is_some();
        let has_moved = report.as_ref().is_none_or(|report| report.areas > 0);
        if let Some(report) = report {
            if let Some(error) = &report.error {
                timeline.note(format!("bulk memory, after the dump: {error}"));
            }
            memory_order::tell(timeline, "dump", "drain", report);
        }
        if !has_moved || !has_index(&self.options.image_path) {
            if !has_run {
                timeline.note("memory is left to CRIU alone: it has not loaded the plugin");
            }
            return None;
        }
        if let Some(directory) = &order.directory {
            let origin = Origin::new(self.engine, &self.options.id, &self.options.image_path);
            if let Err(error) = origin.write(directory) {
                // It restores all the same.
                timeline.note(format!(
                    "where {} is from cannot be written: {error}",
                    directory.display()
                ));
            }
        }
        if order.tier == Tier::Ram {
            let started = WriteBehind::new(self.engine, &self.options.id, order.image_id).start();
            if let Err(error) = started {
                timeline.note(format!(
                    "bulk memory {} stays in memory alone: {error}",
                    order.image_id
                ));
            }
        }
        self.record()
    }

    /// After a dump that succeeded: waits until tasks that go on have their memory again. Why not, if they do not get it.
    pub(crate) fn not_returned(&self) -> Option<String> {
        let (order, files) = self.ordered.as_ref()?;
        match order.after {
            After::End => None,
            After::GoOn => {
                files.wait_until_over();
                files.report()?.not_returned
            }
        }
    }

    /// After a dump that failed: waits until tasks have their memory again, and gives what the plugin said, if anything.
    pub(crate) fn failed(&self) -> MemoryFailure {
        let Some((order, files)) = &self.ordered else {
            return MemoryFailure::without_plugin();
        };
        files.wait_until_over();
        let report = files.report();
        let moved = report.as_ref().map(|report| report.bytes);
        let report = report.unwrap_or_default();
        // What tasks still lack is nowhere else.
        if report.not_returned.is_none() {
            let directory = order.directory.as_deref();
            let _ = stasis_memory_store::discard(&self.options.image_path, directory);
        }
        MemoryFailure {
            error: report.error,
            moved,
            not_returned: report.not_returned,
        }
    }

    /// Once no manifest says that there is bulk memory: takes away the index of nothing that the plugin wrote, with which the image
    /// would not be one that CRIU made alone.
    pub(crate) fn remove_unused(&self) {
        if let Some((order, _)) = &self.ordered {
            // With what stays it restores all the same; `stasis memory prune` finds the rest.
            let _ =
                stasis_memory_store::discard(&self.options.image_path, order.directory.as_deref());
        }
    }
}

fn dump_order(
    engine: &Engine,
    options: &CheckpointOptions,
    container: &Container,
    files: &OrderFiles,
    timeline: &mut Timeline<'_>,
) -> Result<DumpOrder, Failure> {
    let settings = &engine.settings.bulk_memory;
    let image_id = new_image_id().map_err(Failure::ImageId)?;
    let stores = Stores::of(&engine.settings);
    let tier = choose_tier(engine, &stores, container, timeline);
    let directory = stores.directory_of(tier, image_id);
    let parent = directory.as_deref().and_then(Path::parent);
    let earlier =
        parent.and_then(|parent| memory_stores::newest_of(parent, &options.id, &engine.root));
    let level = settings.compression_level;
    Ok(DumpOrder {
        image_id,
        tier,
        directory,
        earlier,
        threads: memory_order::threads(engine, tier),
        compression: (level > 0).then_some(Compression { level }),
        after: match options.after {
            AfterDump::Exit => After::End,
            AfterDump::LeaveRunning => After::GoOn,
        },
        minimum_mib: settings.minimum_mib,
        progress: Some(files.progress.clone()),
        report: Some(files.report.clone()),
    })
}

/// Memory is a place only for what it has room for.
fn choose_tier(
    engine: &Engine,
    stores: &Stores,
    container: &Container,
    timeline: &mut Timeline<'_>,
) -> Tier {
    match engine.settings.bulk_memory.tier {
        MemoryTier::Portable => return Tier::Portable,
        MemoryTier::Disk => return Tier::Disk,
        MemoryTier::Ram => {}
    }
    let percent = engine.settings.bulk_memory.ram_limit_percent;
    let earlier = memory_stores::newest_of(&stores.ram, container.id(), &engine.root);
    let room = memory_in_ram::mount_once(stores, percent)
        .and_then(|()| anonymous_of(container))
        .and_then(|bytes| memory_in_ram::make_room(stores, bytes, earlier.as_deref()));
    let why = match room {
        Ok(Some(dropped)) => {
            for note in dropped {
                timeline.note(note);
            }
            return Tier::Ram;
        }
        Ok(None) => "there is no room for it in memory (bulk_memory.ram_limit_percent)".to_owned(),
        Err(error) => format!("{}: {error}", stores.ram.display()),
    };
    timeline.note(format!("bulk memory goes to disk: {why}"));
    Tier::Disk
}

/// Whether an image has bulk memory that CRIU alone does not restore.
pub(crate) fn has_index(image: &Path) -> bool {
    image.join(INDEX_FILE).symlink_metadata().is_ok()
}

/// Removes what the plugin has put into an image directory.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn remove_from(image: &Path) -> Result<(), StoreError> {
    stasis_memory_store::discard(image, None)
}

/// Tells this boot of the machine from others (random(4)).
pub(crate) fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}
