//! A document's blocks of code.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const FENCE: &str = "```";

/// A block, and where it stands.
pub(super) struct Block {
    /// The nearest heading above it, of any level.
    pub(super) heading: String,
    /// Its language, if its fence names one.
    pub(super) language: String,
    /// Its lines, without the margin that a list gives them.
    pub(super) text: String,
}

/// Reads a document of this repository.
pub(crate) fn page(path: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Returns the blocks below a heading.
pub(crate) fn blocks<const N: usize>(page: &str, heading: &str) -> Result<[String; N]> {
    let all = all_blocks(page)?.into_iter();
    let below = all.filter(|block| block.heading == heading);
    let below: Vec<String> = below.map(|block| block.text).collect();
    let found = below.len();
    let below = below.try_into().ok();
    below.with_context(|| format!("{heading} has {found} blocks, and {N} are known"))
}

/// Returns all blocks of a document, in its order.
pub(super) fn all_blocks(page: &str) -> Result<Vec<Block>> {
    let (mut found, mut heading, mut open) = (Vec::new(), "", None::<(usize, Block)>);
    for line in page.lines() {
        let text = line.trim_start();
        match (&mut open, text.strip_prefix(FENCE)) {
            (None, None) => {
                if line.starts_with('#') {
                    heading = line.trim_start_matches('#').trim();
                }
            }
            (None, Some(language)) => {
                let block = Block {
                    heading: heading.to_owned(),
                    language: language.to_owned(),
                    text: String::new(),
                };
                open = Some((line.len() - text.len(), block));
            }
            (Some((margin, block)), None) => {
                block.text.push_str(line.get(*margin..).unwrap_or_default());
                block.text.push('\n');
            }
            (Some(_), Some(_)) => found.extend(open.take().map(|(_, block)| block)),
        }
    }
    ensure!(open.is_none(), "the last block has no end");
    Ok(found)
}

#[test]
fn blocks_are_found_with_their_headings() {
    let page = "# A\n```\n# no heading\n```\n## B\n* c:\n  ```yaml\n  d: [\n    e]\n  ```\n";
    let found = all_blocks(page).unwrap();
    let read: Vec<_> = found
        .iter()
        .map(|block| (&*block.heading, &*block.language, &*block.text))
        .collect();
    let expected = [("A", "", "# no heading\n"), ("B", "yaml", "d: [\n  e]\n")];
    assert_eq!(read, expected);
    assert!(all_blocks("```\n").is_err());
}
