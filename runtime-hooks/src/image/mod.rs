//! What an image directory holds beside CRIU's own files.

pub mod allowed;
pub mod directory;
pub mod disk_space;
pub mod files;
pub mod manifest;
pub mod pstree;
pub mod tmpfs;
