//! The OCI runtime.
fn main() {}
