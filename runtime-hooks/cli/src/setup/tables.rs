//! A TOML file: finds, sets and removes values, and keeps everything else in it.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::SetupError;
use super::change::{self, Change};

/// A file of settings.
#[derive(Debug)]
pub(crate) struct Toml {
    pub(crate) path: PathBuf,
    document: DocumentMut,
}

/// Edits a file, and returns the change.
pub(super) fn changed(
    path: &str,
    edit: impl FnOnce(&mut Toml) -> Result<(), SetupError>,
) -> Result<Change, SetupError> {
    let path = Path::new(path);
    let before = change::read(path)?;
    let mut toml = Toml::parse(path, before.as_deref())?;
    edit(&mut toml)?;
    Ok(Change::of(path, before, toml.text()))
}

impl Toml {
    /// Reads a file; a missing one counts as empty.
    pub(crate) fn read(path: &Path) -> Result<Self, SetupError> {
        Self::parse(path, change::read(path)?.as_deref())
    }

    pub(crate) fn parse(path: &Path, text: Option<&str>) -> Result<Self, SetupError> {
        let parsed = text.unwrap_or_default().parse::<DocumentMut>();
        let document = parsed.map_err(|error| SetupError::Content {
            path: path.to_owned(),
            why: error.to_string().trim_end().replace('\n', "; "),
        })?;
        Ok(Self {
            path: path.to_owned(),
            document,
        })
    }

    /// Returns the file's new text; `None` if there is to be no file.
    pub(super) fn text(&self) -> Option<String> {
        let text = self.document.to_string();
        (!text.trim().is_empty()).then_some(text)
    }

    /// Makes the error that it cannot be changed.
    pub(super) fn wrong(&self, why: impl Into<String>) -> SetupError {
        SetupError::Content {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    /// Finds the item below these keys.
    pub(crate) fn find(&self, keys: &[&str]) -> Option<&Item> {
        let mut item = self.document.as_item();
        for key in keys {
            item = item.as_table_like()?.get(key)?;
        }
        Some(item)
    }

    /// Sets a value of the table below these keys, which is made if it does not exist. A value that
    /// is the same keeps its comment.
    pub(super) fn put(
        &mut self,
        keys: &[&str],
        key: &str,
        new: impl Into<Value>,
    ) -> Result<(), SetupError> {
        let Some(table) = table(&mut self.document, keys) else {
            return Err(self.wrong(format!("{} is no table", keys.join("."))));
        };
        let bare = |value: &Value| value.clone().decorated("", "").to_string();
        let new = new.into();
        let is = table.get(key).and_then(Item::as_value).map(bare);
        if is != Some(bare(&new)) {
            table.insert(key, Item::Value(new));
        }
        Ok(())
    }

    /// Removes the item below these keys, and the tables around it that then are empty.
    pub(super) fn remove(&mut self, keys: &[&str]) {
        remove(self.document.as_table_mut(), keys);
    }
}

/// Returns the table below these keys. Tables above it get no line of their own.
fn table<'a>(document: &'a mut DocumentMut, keys: &[&str]) -> Option<&'a mut dyn TableLike> {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, key) in keys.iter().enumerate() {
        if !table.contains_key(key) {
            let mut new = Table::new();
            new.set_implicit(depth + 1 < keys.len());
            table.insert(key, Item::Table(new));
        }
        table = table.get_mut(key).and_then(Item::as_table_like_mut)?;
    }
    Some(table)
}

fn remove(table: &mut dyn TableLike, keys: &[&str]) {
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
