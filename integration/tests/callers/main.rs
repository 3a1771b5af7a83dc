//! The callers of stasis: ctr, Docker and podman, containerd with the shipped settings; and the
//! test hosts themselves, with stock programs alone.

mod bootstrap;
mod commands;
mod containerd_config;
mod ctr;
mod docker;
mod docker_bridge;
mod exchange;
mod hooks;
mod hosts;
mod installer;
mod installer_image;
mod kept_at_stop;
mod older_containerd;
mod other_hosts;
mod packages;
mod pages;
mod podman;
mod private_criu;
mod pushed;
mod rpm;
mod setup;
mod terminal;
mod through_engine;
mod upgrade;
