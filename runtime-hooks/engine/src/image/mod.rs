//! The content of an image directory beside CRIU's own files.

pub mod allowed;
pub mod contents;
pub(crate) mod criu_file;
pub mod directory;
pub mod disk_space;
pub mod files;
pub mod manifest;
pub(crate) mod mounted;
pub mod not_kept;
pub mod pstree;
pub mod recorded;
pub mod retention;
pub mod tmpfs;
pub mod work_directory;
