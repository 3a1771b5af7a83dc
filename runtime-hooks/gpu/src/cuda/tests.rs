use super::*;

#[test]
fn error_codes_survive_the_round_trip() {
    for code in [1, 2, 3, 201, 304, 401, 600, 800, 801, 999, -1] {
        assert_eq!(CudaError::from_code(code).code(), code);
    }
    assert_eq!(CudaError::from_code(999), CudaError::Unknown(999));
}

#[test]
fn an_unknown_state_is_carried() {
    assert_eq!(CudaState::from(5), CudaState::Unknown(5));
    assert_eq!(CudaState::from(2), CudaState::Checkpointed);
}

#[test]
fn a_gpu_uuid_reads_what_it_writes() {
    let text = "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    let uuid: GpuUuid = text.parse().unwrap();
    assert_eq!(uuid.to_string(), text);
    assert_eq!(uuid.as_bytes()[..4], [0x0f, 0x1e, 0x2d, 0x3c]);
}

#[test]
fn a_malformed_gpu_uuid_is_refused() {
    for text in [
        "",
        "GPU-",
        "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
        "GPU-0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1fg",
        "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2eé",
    ] {
        assert!(text.parse::<GpuUuid>().is_err(), "{text}");
    }
}

#[test]
fn a_map_is_widened_only_if_there_is_more_to_say() {
    let uuid = |byte| GpuUuid::from_bytes([byte; 16]);
    let moved = GpuMap::new(vec![(uuid(1), uuid(2))]);
    assert_eq!(moved.widened(), None);
    let all = vec![(uuid(1), uuid(2)), (uuid(2), uuid(1))];
    let others = vec![(uuid(2), uuid(1))];
    assert_eq!(
        moved.with_others(others.clone()).widened(),
        Some(GpuMap::new(all))
    );
    // Without pairs every GPU stays, and the driver needs no other pairs.
    assert_eq!(GpuMap::identity().with_others(others).widened(), None);
}
