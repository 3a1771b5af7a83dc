//! Names and paths of other programs, made fit for a message.

/// Text for a terminal or a log line: what is not UTF-8 becomes U+FFFD, and control characters
/// (line feeds, escape sequences, changes of the direction of writing) become Rust's escapes, so
/// that a name can neither end a line nor act on a terminal. Backslashes stay as they are, so that
/// a message can be escaped as a whole with names in it that were escaped before.
#[must_use]
pub fn escaped(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            c if c.is_alphanumeric() => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_as_they_are() {
        for name in ["python3", "训练程序", "a) R (b", "it's", "\u{fffd}"] {
            assert_eq!(escaped(name.as_bytes()), name);
        }
    }

    #[test]
    fn what_is_not_utf_8_is_replaced() {
        assert_eq!(escaped(b"mod\xe8le"), "mod\u{fffd}le");
    }

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        assert_eq!(escaped(b"a\nb\x1b[31m\0"), "a\\nb\\u{1b}[31m\\0");
        assert_eq!(escaped("\u{202e}".as_bytes()), "\\u{202e}");
        assert_eq!(escaped(escaped(b"a\nb").as_bytes()), "a\\nb");
    }
}
