//! The names of containers and images, for shells that complete them.
//!
//! Names come from annotations, which whoever makes a container can choose, and a shell may carry
//! out what is in a word, or take it apart: only names without any such character are offered.

use std::ffi::OsString;
use std::path::PathBuf;

use stasis_config::Settings;

use super::known;
use crate::cli::answer::write_line;
use crate::cli::documents::names::{Named, VERB};
use crate::cli::locate::{Located, running};

/// Answers a shell, a name a line; `None` if none has asked. What cannot be looked at has no names.
#[must_use]
pub fn run(arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut words = arguments.skip(1);
    if words.next()? != VERB {
        return None;
    }
    let kind = words.next()?;
    let names: Vec<String> = match Named::asked_for(kind.to_str()?)? {
        Named::Containers => running(None).iter().map(name).collect(),
        Named::Images => images(),
    };
    let plain = names.iter().filter(|name| is_plain(name));
    plain.into_iter().for_each(|name| {
        // No shell waits for an error.
        let _ = write_line(name);
    });
    Some(0)
}

fn name(found: &Located) -> String {
    let id = || found.container.id().to_owned();
    found.known().name.unwrap_or_else(id)
}

fn images() -> Vec<String> {
    let settings = Settings::load(None).ok();
    let known = settings.and_then(|settings| known::with_dockers(&settings).ok());
    let known = known.unwrap_or_default().into_iter();
    let known = known.map(PathBuf::into_os_string);
    known.filter_map(|path| path.into_string().ok()).collect()
}

fn is_plain(name: &str) -> bool {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "/._-+".contains(one);
    name.chars().all(is_plain) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_that_a_shell_could_carry_out_is_offered() {
        for plain in ["job", "ml/train-0/main", "0a1b", "/images/job-1"] {
            assert!(is_plain(plain), "{plain}");
        }
        for odd in [
            "$(id)", "a b", "`id`", "a;b", "-rf", "a\nb", "*", "é", "a:b",
        ] {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn nobody_else_is_answered() {
        let asked = |words: &[&str]| run(words.iter().map(OsString::from));
        assert_eq!(asked(&["stasis", "ps"]), None);
        assert_eq!(asked(&["stasis"]), None);
        assert_eq!(asked(&["stasis", VERB, "anything"]), None);
    }
}
