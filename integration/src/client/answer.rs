//! Documents of `stasis --json`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Returns the list of a document, which names the schema that docs/commands.md describes.
pub fn listed(document: &[u8]) -> Result<Vec<Value>> {
    let text = || String::from_utf8_lossy(document).into_owned();
    let answer: Value = serde_json::from_slice(document).with_context(text)?;
    ensure!(answer["schema"] == 1, "{answer:#}");
    let fields = answer.as_object().with_context(text)?;
    let lists: Vec<_> = fields.values().filter_map(Value::as_array).collect();
    ensure!(lists.len() == 1 && fields.len() == 2, "{answer:#}");
    Ok(lists[0].clone())
}
