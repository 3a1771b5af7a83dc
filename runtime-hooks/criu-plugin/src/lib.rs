//! CRIU plugin: moves bulk memory with many threads.
