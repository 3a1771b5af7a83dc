//! Containers that fight back: programs (`integration/workloads/hostile`) that do what they can
//! while they are looked at, checkpointed, suspended and restored.
//!
//! Whatever they do, each operation ends, says by name what came of it, and that is so; a container
//! beside them counts on; and once they are gone nothing is left of them.

mod descriptors;
mod images;
mod injected;
mod names;
mod processes;
mod silent_files;
mod trial;
mod unsteady_memory;
