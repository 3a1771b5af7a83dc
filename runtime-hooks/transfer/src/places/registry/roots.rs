//! Whom a registry's certificate may be from: whom this machine trusts, and whom it trusts for this
//! registry, as Docker and podman have it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stasis_linux::file;
use stasis_oci_image::OciImageError;
use stasis_oci_image::RepositoryName;
use ureq::tls::{PemItem, RootCerts, parse_pem};

/// Where distributions have them: Debian, Fedora, SUSE.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];
/// Below it, a folder for each registry.
const OF_REGISTRIES: [&str; 2] = ["/etc/docker/certs.d", "/etc/containers/certs.d"];
/// Some twenty times what there is.
const MOST_BYTES: u64 = 8 << 20;

/// The certificates for a registry.
pub(super) fn roots(name: &RepositoryName) -> Result<RootCerts, OciImageError> {
    let bundles = BUNDLES.iter().map(PathBuf::from);
    let own = OF_REGISTRIES
        .iter()
        .map(|folder| Path::new(folder).join(name.host()).join("ca.crt"));
    let mut roots = Vec::new();
    for path in bundles.chain(own) {
        let text = file::read(&path, MOST_BYTES).map_err(OciImageError::io("read", &path))?;
        let items = text
            .iter()
            .flat_map(|text| parse_pem(text).filter_map(Result::ok));
        roots.extend(items.filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        }));
    }
    Ok(RootCerts::Specific(Arc::new(roots)))
}
