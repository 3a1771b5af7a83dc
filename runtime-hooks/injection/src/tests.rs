#![allow(clippy::unwrap_used)]

mod program;
mod slots;
