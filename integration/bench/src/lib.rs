//! What the benchmarks and the programs beside them have in common.

pub mod gpu_contents;
