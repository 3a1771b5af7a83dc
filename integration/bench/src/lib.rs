//! Code that the benchmarks and the programs beside them share.

pub mod gpu_contents;
