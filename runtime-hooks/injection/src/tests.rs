#![allow(clippy::unwrap_used)]

mod contents;
mod exchange_killed;
mod hole;
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
