//! Tables of a TOML file: looked up, made and removed beside what else is in it.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::SetupError;

/// A file's contents as a document: none is an empty one.
pub(in crate::cli) fn parse(path: &Path, text: Option<&str>) -> Result<DocumentMut, SetupError> {
    let parsed = text.unwrap_or_default().parse::<DocumentMut>();
    parsed.map_err(|error| SetupError::Content {
        path: path.to_owned(),
        why: error.to_string().trim_end().replace('\n', "; "),
    })
}

/// What is there below these keys.
pub(in crate::cli) fn find<'a>(document: &'a DocumentMut, keys: &[&str]) -> Option<&'a Item> {
    let mut item = document.as_item();
    for key in keys {
        item = item.as_table_like()?.get(key)?;
    }
    Some(item)
}

/// The table below these keys, which is made if it is not there. Those above it get no line of
/// their own.
pub(super) fn table<'a>(
    path: &Path,
    document: &'a mut DocumentMut,
    keys: &[&str],
) -> Result<&'a mut dyn TableLike, SetupError> {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, key) in keys.iter().enumerate() {
        if !table.contains_key(key) {
            let mut new = Table::new();
            new.set_implicit(depth + 1 < keys.len());
            table.insert(key, Item::Table(new));
        }
        let item = table.get_mut(key).and_then(Item::as_table_like_mut);
        table = item.ok_or_else(|| SetupError::Content {
            path: path.to_owned(),
            why: format!("{} is no table", keys[..=depth].join(".")),
        })?;
    }
    Ok(table)
}

/// Sets a value of the table below these keys. One that is the same keeps its comment.
pub(super) fn put(
    path: &Path,
    document: &mut DocumentMut,
    keys: &[&str],
    key: &str,
    new: impl Into<Value>,
) -> Result<(), SetupError> {
    let table = table(path, document, keys)?;
    let bare = |value: &Value| value.clone().decorated("", "").to_string();
    let new = new.into();
    let is = table.get(key).and_then(Item::as_value).map(bare);
    if is != Some(bare(&new)) {
        table.insert(key, Item::Value(new));
    }
    Ok(())
}

/// Removes what is there below these keys, and the tables around it that then are empty.
pub(super) fn remove(table: &mut dyn TableLike, keys: &[&str]) {
    match keys {
        [] => {}
        [key] => {
            table.remove(key);
        }
        [key, below @ ..] => {
            let Some(inner) = table.get_mut(key).and_then(Item::as_table_like_mut) else {
                return;
            };
            remove(inner, below);
            if inner.is_empty() {
                table.remove(key);
            }
        }
    }
}
