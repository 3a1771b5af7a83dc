//! The messages between engine and CRIU plugin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stasis_memory_store::{DumpRequest, RestoreRequest, StoreStatistics};

fuzz_target!(|text: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<DumpRequest>(text) {
        assert!(serde_json::to_vec(&request).is_ok());
    }
    if let Ok(request) = serde_json::from_slice::<RestoreRequest>(text) {
        assert!(serde_json::to_vec(&request).is_ok());
    }
    if let Ok(report) = serde_json::from_slice::<StoreStatistics>(text) {
        assert!(serde_json::to_vec(&report).is_ok());
    }
});
