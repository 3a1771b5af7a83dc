//! Test hosts, stand-in driver and workloads of stasis.
