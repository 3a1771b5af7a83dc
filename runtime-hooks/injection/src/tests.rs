#![allow(clippy::unwrap_used)]

mod killed;
mod program;
mod programs;
mod round;
mod slots;
mod state;
