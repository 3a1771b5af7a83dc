//! The kind of a failure and the container's state, as words for scripts.
//!
//! A message is for a person, and its text may change. Its kind and its state do not: they are part
//! of the interface, in the runtime's log, in `operations.log` and wherever JSON is asked for.
//! `docs/troubleshooting.md` has an entry for each.

use serde::{Serialize, Serializer};
use stasis_config::words;

words! {
    /// Why an operation was refused or failed.
    #[derive(serde::Deserialize)]
    Kind {
        /// The pre-flight found a state that no checkpoint or restore is known to survive.
        Blocked = "blocked",
        /// The bulk memory of the image could not be written or filled in.
        BulkMemory = "bulk-memory",
        /// The new container's `config.json` cannot be read or changed.
        Bundle = "bundle",
        /// Another operation works on the container.
        Busy = "busy",
        /// A signal asked the operation to end.
        Cancelled = "cancelled",
        /// The container is paused, and the driver answers nothing for it.
        ContainerPaused = "container-paused",
        /// The container's processes or its state in the low-level runtime cannot be read.
        ContainerUnreadable = "container-unreadable",
        /// CRIU failed.
        Criu = "criu",
        /// An annotation of the container gives CRIU a configuration file.
        CriuConfiguration = "criu-configuration",
        /// An operation was killed, and what it had begun could not be undone yet.
        CutOff = "cut-off",
        /// The container's device nodes could not be made.
        DeviceNodes = "device-nodes",
        /// The CUDA driver refused a call.
        Driver = "driver",
        /// The CUDA driver lacks a needed function; a newer driver has it.
        DriverTooOld = "driver-too-old",
        /// The container's engine failed, or has no way to do what was asked for.
        Engine = "engine",
        /// A file that processes of the image have open or mapped is not there, or another.
        FileMissing = "file-missing",
        /// The freezer of the container did not freeze or thaw it.
        Freezer = "freezer",
        /// A cgroup above the container's is frozen.
        FrozenAbove = "frozen-above",
        /// The map from the image's GPUs to others cannot be used.
        GpuMap = "gpu-map",
        /// Another container of the group was not checkpointed, so none was.
        GroupAbandoned = "group-abandoned",
        /// A hook of the container failed, or cannot be run.
        HookFailed = "hook-failed",
        /// runc, crun, CRIU or a disk did nothing for so long that it was given up.
        Hung = "hung",
        /// The image is being pulled, and not all of it is there.
        ImageArriving = "image-arriving",
        /// The image is incomplete or damaged.
        ImageDamaged = "image-damaged",
        /// A directory for the image or for bulk memory cannot be used.
        ImageDirectory = "image-directory",
        /// The settings do not allow restores of this image.
        ImageNotAllowed = "image-not-allowed",
        /// The image was written by another version of stasis.
        ImageVersion = "image-version",
        /// A forked child does not give up the NVIDIA devices that it inherited.
        InheritedDevices = "inherited-devices",
        /// The caller's shim is too old, or too new, to be understood.
        InterfaceVersion = "interface-version",
        /// A file of the host could not be read or written.
        Io = "io",
        /// Work that a process had submitted to its GPU did not finish in time.
        LockTimeout = "lock-timeout",
        /// runc or crun failed before CRIU ran, or could not be started.
        LowLevelRuntime = "low-level-runtime",
        /// A memory limit of the container leaves too little for its GPU contents.
        MemoryLimit = "memory-limit",
        /// The bulk memory of the image is not on this machine.
        MemoryMissing = "memory-missing",
        /// Processes did not get back the GPU contents that a checkpoint had stored.
        MemoryNotReturned = "memory-not-returned",
        /// The GPU is in MIG mode.
        Mig = "mig",
        /// A mount that processes of the image had is not provided.
        MountMissing = "mount-missing",
        /// The GPU is used through MPS.
        Mps = "mps",
        /// A process, or the driver on its behalf, does not answer.
        NoAnswer = "no-answer",
        /// No running container has this name, or several have it.
        NoContainer = "no-container",
        /// No process uses CUDA.
        NoCuda = "no-cuda",
        /// The CUDA driver library cannot be used.
        NoDriver = "no-driver",
        /// A GPU of the image, or its replacement, is missing.
        NoGpu = "no-gpu",
        /// A GPU has too little free memory.
        NoGpuMemory = "no-gpu-memory",
        /// The host has too little free memory.
        NoHostMemory = "no-host-memory",
        /// A process has as many mappings as it may have.
        NoMappings = "no-mappings",
        /// A GPU is not in persistence mode.
        NoPersistence = "no-persistence",
        /// CRIU does not use the plugin that the image needs.
        NoPlugin = "no-plugin",
        /// A file system or a quota is full.
        NoSpace = "no-space",
        /// The caller is not root.
        NotRoot = "not-root",
        /// The container was created from an image, and is not started yet.
        NotStarted = "not-started",
        /// NVML cannot be used.
        Nvml = "nvml",
        /// The CPU lacks instructions that the image's machine had.
        OtherCpu = "other-cpu",
        /// The image was made with another driver than this machine has.
        OtherDriver = "other-driver",
        /// Memory cannot be dumped in advance.
        PreDump = "pre-dump",
        /// A process ended in the middle of the operation.
        ProcessEnded = "process-ended",
        /// CRIU did not bring back a process of the image.
        ProcessMissing = "process-missing",
        /// A process started CUDA while the container was being checkpointed.
        ProcessStartedCuda = "process-started-cuda",
        /// A process is stopped by a signal or a debugger.
        ProcessStopped = "process-stopped",
        /// A registry cannot be reached, or does not do what is asked.
        Registry = "registry",
        /// The settings cannot be used.
        Settings = "settings",
        /// GPU memory that processes share was not given up, or not shared again.
        SharedMemory = "shared-memory",
        /// A process holds GPU state that the driver cannot save.
        Unsupported = "unsupported",
        /// The command line is wrong.
        Usage = "usage",
        /// Not all processes are in the state that the step requires.
        WrongState = "wrong-state",
    }
}

words! {
    /// How the container is after an operation that was refused or failed.
    State {
        /// As before: the container runs, or is paused if its caller had paused it. A refused
        /// restore has created no container.
        Unharmed = "unharmed",
        /// Still paused, with its GPU state in host memory; a resume can be tried again.
        Paused = "paused",
        /// Some processes do not answer; a process of stasis resumes them once they do.
        Waiting = "waiting",
        /// The container has ended. Nothing is left of a container that was being restored.
        Ended = "ended",
        /// Some processes cannot resume: the container has to be killed.
        Lost = "lost",
        /// The state could not be read or restored: inspect the container, then resume or kill it.
        Unknown = "unknown",
    }
}

/// Whether a failed checkpoint has nevertheless written an image that can be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// The image is complete; only the container did not resume.
    Complete,
    /// There is no image, or the operation writes none.
    None,
}

/// A failure's data beside its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The kind of the failure.
    pub kind: Kind,
    /// The container's state now.
    pub state: State,
    /// `"image_complete": true`, if so.
    #[serde(rename = "image_complete", skip_serializing_if = "Image::is_none")]
    pub image: Image,
}

impl Image {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl Serialize for Image {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self == Self::Complete)
    }
}

impl Diagnosis {
    /// The diagnosis of an operation that wrote no image.
    #[must_use]
    pub fn new(kind: Kind, state: State) -> Self {
        let image = Image::None;
        Self { kind, state, image }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_config::BlockerKind;

    fn document(path: &str) -> String {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        std::fs::read_to_string(format!("{root}/{path}")).unwrap()
    }

    fn troubleshooting() -> String {
        document("docs/troubleshooting.md")
    }

    /// The names behind `before` and in front of `after`, in the lines of the document.
    fn entries(before: &str, after: &str) -> Vec<String> {
        let text = troubleshooting();
        let names = text.lines().filter_map(|line| {
            let (name, _) = line.strip_prefix(before)?.split_once(after)?;
            Some(name.to_owned())
        });
        names.collect()
    }

    fn sorted(names: impl Iterator<Item = impl ToString>) -> Vec<String> {
        let mut names: Vec<_> = names.map(|name| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn each_kind_has_one_entry_in_the_documentation_and_no_other_word_has() {
        let entries = sorted(entries("### `", "`").into_iter());
        assert_eq!(entries, sorted(Kind::ALL.iter()));
    }

    #[test]
    fn each_state_has_one_row_and_no_other_word_has() {
        let rows = sorted(entries("| `", "` |").into_iter());
        assert_eq!(rows, sorted(State::ALL.iter()));
    }

    #[test]
    fn each_blocker_is_explained() {
        let items = sorted(entries("  - `", "`: ").into_iter());
        assert_eq!(items, sorted(BlockerKind::ALL.iter()));
    }

    /// But for sessions of `exec`, which are refused only if the settings say so.
    #[test]
    fn limits_list_all_blockers() {
        let limits = document("docs/limits.md");
        let (_, refused) = limits.split_once("\n## What is refused\n").unwrap();
        let (refused, _) = refused.split_once("\n## ").unwrap();
        for kind in BlockerKind::ALL {
            let is_listed = refused.contains(&format!("`{kind}`"));
            assert_eq!(is_listed, *kind != BlockerKind::ExecSession, "{kind}");
        }
    }

    #[test]
    fn names_are_kebab_case() {
        let names = Kind::ALL.iter().map(|kind| kind.name());
        for name in names.chain(State::ALL.iter().map(|state| state.name())) {
            let is_kebab = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
            assert!(name.bytes().all(is_kebab), "{name}");
        }
    }
}
