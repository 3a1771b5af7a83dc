//! An error and its sources in one line.

use crate::escape::escaped;

/// The message of an error, then those of its sources, separated by colons. A message that is
/// already part of the line (`#[error("...: {source}")]`) is not repeated. Control characters are
/// escaped: names and paths of containers, and other programs' messages, are in it.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = escaped(error.to_string().as_bytes());
    let mut source = error.source();
    while let Some(error) = source {
        let next = escaped(error.to_string().as_bytes());
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{error, fmt, io};

    #[derive(Debug)]
    struct Outer(&'static str, io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl error::Error for Outer {
        fn source(&self) -> Option<&(dyn error::Error + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn each_cause_is_in_it_once() {
        let error = Outer("cannot lock", io::Error::other("no answer"));
        assert_eq!(error_chain(&error), "cannot lock: no answer");
        let error = Outer("cannot lock: no answer", io::Error::other("no answer"));
        assert_eq!(error_chain(&error), "cannot lock: no answer");
    }

    #[test]
    fn no_cause_ends_the_line_or_acts_on_a_terminal() {
        let error = Outer("criu:\n\x1b[31mred", io::Error::other("two\nlines"));
        assert_eq!(error_chain(&error), "criu:\\n\\u{1b}[31mred: two\\nlines");
        let error = Outer("it failed: two\\nlines", io::Error::other("two\nlines"));
        assert_eq!(error_chain(&error), "it failed: two\\nlines");
    }
}
