use super::*;

/// A file that cannot be seen may still be without its contents: the driver would copy zeros.
#[test]
fn contents_that_cannot_be_seen_are_waited_for() {
    let span = Span {
        start: 0x1000,
        length: 0x1000,
    };
    assert!(may_be_in_file(&Ok(vec![span])));
    assert!(!may_be_in_file(&Ok(Vec::new())));
    assert!(may_be_in_file(&Err(io::ErrorKind::OutOfMemory.into())));
}
