//! Signals as people and engines name them.

use nix::sys::signal::Signal;

/// The highest signal (signal(7)).
const HIGHEST: i32 = 64;

/// Parses a signal that is given as "15", "TERM" or "SIGTERM".
pub fn number_of(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse() {
        return (1..=HIGHEST).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let signal: Signal = format!("SIG{name}").parse().ok()?;
    Some(signal as i32)
}

/// Returns the name of a signal, for people.
pub fn name_of(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |it| it.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_known() {
        for text in ["15", "TERM", "SIGTERM", "sigterm", "term"] {
            assert_eq!(number_of(text), Some(15), "{text}");
        }
        assert_eq!(number_of("37"), Some(37));
        for text in ["", "0", "65", "-1", "SIG", "NONE", "SIGSIGTERM"] {
            assert_eq!(number_of(text), None, "{text}");
        }
        assert_eq!(
            (name_of(15).as_str(), name_of(37).as_str()),
            ("SIGTERM", "signal 37")
        );
    }
}
