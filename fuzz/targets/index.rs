//! The index of bulk memory. The input is read as a whole file, and as a body with a header that
//! fits it, as no fuzzer would find the hash. An accepted input is what its index encodes to.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stasis_memory_store::Index;

fn decode(file: &[u8]) {
    if let Ok(index) = Index::decode(file) {
        assert_eq!(index.encode(), file);
    }
}

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    for version in [3_u32] {
        let mut file = b"STASISMM".to_vec();
        file.extend(version.to_le_bytes());
        file.extend([0; 4]);
        file.extend((bytes.len() as u64).to_le_bytes());
        file.extend(blake3::hash(bytes).as_bytes());
        file.extend(bytes);
        decode(&file);
    }
});
