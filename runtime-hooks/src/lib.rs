//! The engine of stasis.
