//! Our shim under containerd: its tasks, streams and events, checkpoints through it, and the faults
//! that it survives.

mod at_create;
mod at_stop;
mod checkpoint;
mod checkpoint_options;
mod containerd_crash;
mod crash;
mod crash_steps;
mod cri;
mod cri_at_stop;
mod cri_checkpoint;
mod cri_user_namespaces;
mod ends;
mod events;
mod gone_callers;
mod hanging_runtime;
mod lifetime;
mod limits;
mod outcomes;
mod restore;
mod signals;
mod stdio;
mod tasks;
mod terminals;
