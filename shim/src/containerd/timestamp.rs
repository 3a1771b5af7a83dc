//! Times in the form of protobuf.

use std::time::SystemTime;

use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::protobuf::well_known_types::timestamp::Timestamp;

/// A field that holds a time.
pub(crate) fn field(time: SystemTime) -> MessageField<Timestamp> {
    MessageField::some(Timestamp::from(time))
}
