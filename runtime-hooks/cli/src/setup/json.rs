//! A JSON object that keeps the order of its keys, and the text of each value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The indentation of keys: the object does not keep the file's.
const INDENT: &str = "    ";

/// The object.
#[derive(Debug, Default)]
pub(super) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<&RawValue> {
        let mut entries = self.0.iter();
        entries.find_map(|(name, value)| (name == key).then_some(&**value))
    }

    /// Sets a value in its place, or at the end.
    pub(super) fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
    }

    /// Formats the object, with its keys `depth` steps to the right of their file's.
    pub(super) fn to_text(&self, depth: usize) -> Result<String, serde_json::Error> {
        if self.is_empty() {
            return Ok("{}".to_owned());
        }
        let around = INDENT.repeat(depth);
        let entries: Result<Vec<String>, _> = self
            .0
            .iter()
            .map(|(key, value)| {
                let key = serde_json::to_string(key)?;
                Ok::<_, serde_json::Error>(format!("{around}{INDENT}{key}: {value}"))
            })
            .collect();
        Ok(format!("{{\n{}\n{around}}}", entries?.join(",\n")))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
            object.set(&key, value);
        }
        Ok(object)
    }
}
