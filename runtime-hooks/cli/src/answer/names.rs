//! Names in place of ids: people know a container by its name.

/// Puts the name in the place of the id in a message, but not in paths and other longer words.
pub(crate) fn by_name(message: &str, id: &str, name: &str) -> String {
    if id.is_empty() || id == name {
        return message.to_owned();
    }
    let is_of_word = |c: char| c.is_alphanumeric() || "/-_.:@".contains(c);
    let mut text = String::new();
    let mut rest = message;
    while let Some(at) = rest.find(id) {
        let (before, behind) = (&rest[..at], &rest[at + id.len()..]);
        let begins = !text.is_empty() && before.is_empty() || before.ends_with(is_of_word);
        // A colon or full stop behind a word ends it.
        let mut next = behind.chars();
        let goes_on = match next.next() {
            Some(':' | '.') => next.next().is_some_and(is_of_word),
            other => other.is_some_and(is_of_word),
        };
        text += before;
        text += if begins || goes_on { id } else { name };
        rest = behind;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_replaced_where_it_is_a_word() {
        let message = "container abc: see /c/abc/log, abc-1, xabc, abc.1; abc runs (abc)";
        let named = "container job: see /c/abc/log, abc-1, xabc, abc.1; job runs (job)";
        assert_eq!(by_name(message, "abc", "job"), named);
        assert_eq!(by_name(message, "", "job"), message);
        assert_eq!(by_name("abcabc", "abc", "job"), "abcabc");
    }
}
