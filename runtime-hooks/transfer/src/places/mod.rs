//! Places with images: OCI layouts, directories with blobs as `skopeo copy` reads and writes them,
//! and registries. Everything is read as hostile: no path or name is taken from it, and a blob
//! whose digest is another never gets a name.

mod elsewhere;
mod layout;
mod open;
mod registry;

pub(crate) use elsewhere::{Elsewhere, NewBlob, StoreOutcome, Stored};
pub(crate) use layout::Layout;
pub(crate) use open::{open, open_or_make};
pub(crate) use registry::Registry;
pub(crate) use registry::tagged::Tagged;
