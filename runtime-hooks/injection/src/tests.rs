#![allow(clippy::unwrap_used)]

mod contents;
mod killed;
mod program;
mod programs;
mod round;
mod slots;
mod state;
