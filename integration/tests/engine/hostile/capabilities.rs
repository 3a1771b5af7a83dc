//! Capabilities of a container, as engines set them.

use serde_json::{Value, json};

/// The capabilities that engines give to a container.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// Sets capabilities and limits as engines do, where `runc spec` sets fewer.
pub(super) fn as_engines_do(spec: &mut Value) {
    for set in ["bounding", "effective", "permitted"] {
        spec["process"]["capabilities"][set] = json!(CAPABILITIES);
    }
}
