//! Faults at a step of a program that needs to know nothing about it: a tracer (ptrace(2)) counts
//! the system calls with which the program changes something outside of itself, and kills it, or
//! has the call fail, at the k-th.
//!
//! Only the program's own threads are traced, not its children: CRIU restores processes with ptrace
//! itself, and nothing has two tracers. The program that starts it is traced until then.

pub mod call;
mod gate;
mod plan;
mod stop;
mod thread;
mod tracer;

pub use gate::{Gate, Held};
pub use plan::{Action, At, Hit, Plan};
pub use tracer::{Phase, Trace, Traced, phase_in};
