#![allow(clippy::unwrap_used)]

mod contents;
mod detach;
mod exchange_killed;
mod imports;
mod killed;
mod mappings;
mod program;
mod programs;
mod rehearsal;
mod round;
mod slots;
mod state;
mod survey;
