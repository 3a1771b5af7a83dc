//! CRIU plugin: moves bulk memory with many threads.
//!
//! CRIU copies memory with one thread, page by page. When it has stopped the whole tree, and before it looks at any memory, this
//! plugin copies the large private areas of all tasks into a store of its own and has the tasks empty them, so that CRIU finds nothing in
//! them. When CRIU has brought the tasks back, and before any of them runs, the areas are filled again. What the plugin
//! leaves alone CRIU saves as ever.

mod abi;
mod areas;
mod criu;
mod drain;
mod dump;
mod error;
mod fault;
mod fork;
mod freezer;
mod guard;
mod orders;
mod pagemap;
mod progress;
mod proxies;
mod refill;
mod restore;
mod smaps;
mod tree;
mod uffd;
mod wake;
mod yard;

/// As CRIU knows us, and records it in an image that we had a part in.
const NAME: &str = "stasis_memory";
