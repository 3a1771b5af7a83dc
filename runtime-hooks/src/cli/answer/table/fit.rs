//! Text in no more columns than there are. A character counts as one column.

/// Where something was left out.
const CUT: char = '…';
/// The ids of engines have so many hexadecimal digits,
const ID: usize = 64;
/// and they show so many.
const SHORT_ID: usize = 12;

/// How many columns a text takes: those of its longest line.
pub(super) fn columns(text: &str) -> usize {
    let lines = text.lines().map(|line| line.chars().count());
    lines.max().unwrap_or_default()
}

/// An id as engines show it; whatever else people call a container is whole.
pub(super) fn short_id(text: &str) -> &str {
    match is_id(text) {
        true => &text[..SHORT_ID],
        false => text,
    }
}

/// A path, in which ids are as engines show them.
pub(super) fn with_short_ids(path: &str) -> String {
    let names = path.split('/').map(|name| match is_id(name) {
        true => format!("{}{CUT}", short_id(name)),
        false => name.to_owned(),
    });
    names.collect::<Vec<_>>().join("/")
}

fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// As much of the end of a path as there is room for, in whole names if it can be.
pub(super) fn path(path: &str, width: usize) -> String {
    if columns(path) <= width {
        return path.to_owned();
    }
    let ends = path.match_indices('/').map(|(at, _)| &path[at..]);
    let mut ends = ends.map(|end| format!("{CUT}{end}"));
    ends.find(|end| columns(end) <= width)
        .unwrap_or_else(|| text(path, width))
}

/// The beginning and the end of a line.
pub(super) fn text(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let behind = kept / 2;
    let before = text.chars().take(kept - behind);
    let behind = text.chars().skip(length - behind);
    before.chain([CUT]).chain(behind).collect()
}

/// The widths of columns that have so much room together, if that can be: the widest is made
/// narrower, as long as it has more than `least`.
pub(super) fn narrowed(mut widths: Vec<usize>, room: usize, least: usize) -> Vec<usize> {
    while widths.iter().sum::<usize>() > room {
        match widths.iter_mut().max() {
            Some(widest) if *widest > least => *widest -= 1,
            _ => break,
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_end_and_the_beginning_of_its_ids() {
        let id = "0123456789abcdef".repeat(4);
        let long = format!("/var/lib/containers/{id}/userdata/checkpoint");
        let short = with_short_ids(&long);
        assert_eq!(
            short,
            "/var/lib/containers/0123456789ab…/userdata/checkpoint"
        );
        assert_eq!(path(&short, 53), short);
        assert_eq!(
            path(&short, 52),
            "…/lib/containers/0123456789ab…/userdata/checkpoint"
        );
        assert_eq!(path(&short, 36), "…/0123456789ab…/userdata/checkpoint");
        assert_eq!(path("/a-name-without-end", 8), "/a-n…end");
        assert_eq!(with_short_ids("/images/train"), "/images/train");
    }

    #[test]
    fn a_line_is_cut_in_the_middle() {
        assert_eq!(text("checkpointing", 13), "checkpointing");
        assert_eq!(text("checkpointing", 8), "chec…ing");
        assert_eq!(text("ää", 1), "…");
        assert_eq!(text("ää", 0), "…");
    }

    #[test]
    fn the_widest_column_is_made_narrower() {
        assert_eq!(narrowed(vec![60, 10, 40], 82, 36), [36, 10, 36]);
        assert_eq!(narrowed(vec![60, 10, 40], 100, 36), [50, 10, 40]);
        assert_eq!(narrowed(vec![60, 10], 20, 36), [36, 10]);
        assert_eq!(narrowed(vec![60, 10], 20, 1), [10, 10]);
    }
}
