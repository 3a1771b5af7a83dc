//! Settings of stasis.
