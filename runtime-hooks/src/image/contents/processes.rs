//! The processes of an image: `pstree.img`, and `core-PID.img` and `ids-PID.img` of each (CRIU's
//! images/pstree.proto, core.proto).

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use serde::Serialize;

use super::command_line;
use super::files::text;
use super::open_files::{OpenFile, OpenFiles};
use super::{ContentsError, Files};

/// Those of the files (criu/include/magic.h).
const PSTREE_MAGIC: u32 = 0x5027_3030;
const CORE_MAGIC: u32 = 0x5505_3847;
const IDS_MAGIC: u32 = 0x5443_2030;
/// As many as a manifest lists.
const MAX_PROCESSES: usize = 1 << 14;
/// The kernel has 16 (TASK_COMM_LEN).
const MAX_NAME: usize = 64;

/// A process of an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Process {
    /// In the container's pid namespace, as all pids here.
    pub(crate) pid: u32,
    /// Its parent's; 0 of the first process.
    pub(crate) parent: u32,
    /// Its command name.
    pub(crate) name: String,
    /// What it was started with; empty where that is not in the image.
    pub(crate) command_line: Vec<String>,
    pub(crate) threads: usize,
    pub(crate) state: State,
    /// What it has open.
    pub(crate) files: Vec<OpenFile>,
}

/// The state of a process in an image (compel's task-state.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Alive,
    Stopped,
    /// It has ended, and its parent has not asked for its exit code yet.
    Zombie,
    Unknown,
}

/// `pstree_entry`.
#[derive(Message)]
struct PstreeEntry {
    #[prost(uint32, required, tag = "1")]
    pid: u32,
    #[prost(uint32, required, tag = "2")]
    parent: u32,
    #[prost(uint32, repeated, tag = "5")]
    threads: Vec<u32>,
}

/// `core_entry`, as far as it is needed.
#[derive(Message)]
struct CoreEntry {
    #[prost(message, optional, tag = "3")]
    task: Option<TaskCoreEntry>,
}

/// `task_core_entry`, as far as it is needed.
#[derive(Message)]
struct TaskCoreEntry {
    #[prost(uint32, required, tag = "1")]
    state: u32,
    #[prost(bytes = "vec", required, tag = "6")]
    name: Vec<u8>,
}

/// `task_kobj_ids_entry`, as far as it is needed.
#[derive(Message)]
struct IdsEntry {
    /// Processes with the same have the same descriptors.
    #[prost(uint32, required, tag = "2")]
    files: u32,
}

pub(super) fn read(files: &Files, open: &mut OpenFiles) -> Result<Vec<Process>, ContentsError> {
    let mut listed = Vec::new();
    files.each("pstree.img", PSTREE_MAGIC, |entry: PstreeEntry| {
        if listed.len() <= MAX_PROCESSES {
            listed.push((entry.pid, entry.parent, entry.threads.len()));
        }
    })?;
    if listed.len() > MAX_PROCESSES {
        return Err(files.too_much("processes", MAX_PROCESSES));
    }
    let mut processes = Vec::new();
    for (pid, parent, threads) in parents_first(&listed) {
        processes.push(one(files, open, pid, parent, threads)?);
    }
    Ok(processes)
}

fn one(
    files: &Files,
    open: &mut OpenFiles,
    pid: u32,
    parent: u32,
    threads: usize,
) -> Result<Process, ContentsError> {
    let core_name = format!("core-{pid}.img");
    let core: Option<CoreEntry> = files.first(&core_name, CORE_MAGIC)?;
    let task = core.and_then(|core| core.task);
    let task = task.ok_or_else(|| files.malformed(&core_name, "it is of no process".to_owned()))?;
    let ids: Option<IdsEntry> = files.first(&format!("ids-{pid}.img"), IDS_MAGIC)?;
    let open = ids.map(|ids| open.of(files, ids.files)).transpose()?;
    Ok(Process {
        pid,
        parent,
        name: text(&task.name, MAX_NAME),
        command_line: command_line::read(files, pid)?,
        threads,
        state: State::of(task.state),
        files: open.unwrap_or_default(),
    })
}

/// Each behind its parent, as far as that is known; those of one parent in the order of the image.
fn parents_first(listed: &[(u32, u32, usize)]) -> Vec<(u32, u32, usize)> {
    let pids: BTreeSet<u32> = listed.iter().map(|(pid, ..)| *pid).collect();
    let mut children: BTreeMap<u32, Vec<(u32, u32, usize)>> = BTreeMap::new();
    let mut next = Vec::new();
    for entry in listed.iter().rev() {
        let (pid, parent, _) = *entry;
        if parent == pid || !pids.contains(&parent) {
            next.push(*entry);
        } else {
            children.entry(parent).or_default().push(*entry);
        }
    }
    let mut ordered = Vec::new();
    while let Some(entry) = next.pop() {
        ordered.push(entry);
        next.extend(children.remove(&entry.0).unwrap_or_default());
    }
    // Those of a circle, which CRIU does not write.
    ordered.extend(children.into_values().flatten());
    ordered
}

impl State {
    fn of(state: u32) -> Self {
        match state {
            1 => Self::Alive,
            2 | 6 => Self::Zombie,
            3 => Self::Stopped,
            _ => Self::Unknown,
        }
    }
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<PstreeEntry>(bytes, PSTREE_MAGIC);
    crate::image::criu_file::fuzz::<CoreEntry>(bytes, CORE_MAGIC);
    crate::image::criu_file::fuzz::<IdsEntry>(bytes, IDS_MAGIC);
}
