//! The command line of runc and crun, as the OCI runtime `stasis-runtime` reads it and passes it
//! on.

pub mod oci;
