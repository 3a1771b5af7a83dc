//! The engine in test hosts, called through `stasis-runtime`: checkpoints and restores, their
//! failures and what they leave.

mod admission;
mod another_gpu;
mod as_found;
mod check_beside;
mod check_image;
mod cuda_checkpoint;
mod earlier_images;
mod ended_members;
mod exec_sessions;
mod failures;
mod forked_children;
mod gpu_memory;
mod hung;
mod image_directory;
mod interruption;
mod killed;
mod late_cuda;
mod leaks;
mod locking;
mod lost_gpu;
mod many_processes;
mod not_on_disk;
mod not_ours;
mod not_permitted;
mod passthrough;
mod paused_images;
mod peer_access;
mod preflight;
mod progress;
mod ranks;
mod restore;
mod room;
mod stop;
mod whole_images;
mod without_gpu;
