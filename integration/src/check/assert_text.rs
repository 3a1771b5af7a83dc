//! Assertions on messages.

/// Asserts that a text has all of these parts.
///
/// # Panics
/// One is missing.
#[track_caller]
pub fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}
