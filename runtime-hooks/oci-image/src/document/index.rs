//! `index.json`: the manifests of a layout, ours and others', which are kept as they are.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::annotations::NAME;
use super::descriptor::Descriptor;
use super::parse;
use crate::Digest;

/// OCI's media type of an image for several kinds of machines.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The manifests of a layout.
#[derive(Debug, Clone)]
pub struct LayoutIndex {
    /// The other fields, also those that are not known here.
    whole: Map<String, Value>,
    manifests: Vec<Value>,
}

impl LayoutIndex {
    /// Makes an index without manifests.
    pub fn empty() -> Self {
        let mut whole = Map::new();
        whole.insert("schemaVersion".to_owned(), json!(2));
        whole.insert("mediaType".to_owned(), json!(INDEX));
        Self {
            whole,
            manifests: Vec::new(),
        }
    }

    /// Reads an untrusted index.
    pub fn from_text(text: &[u8]) -> Result<Self, String> {
        let mut whole: Map<String, Value> = parse(text)?;
        if whole.get("schemaVersion") != Some(&json!(2)) {
            return Err("it is not an index of OCI's version 2".to_owned());
        }
        match whole.remove("manifests") {
            Some(Value::Array(manifests)) => Ok(Self { whole, manifests }),
            _ => Err("it has no list of manifests".to_owned()),
        }
    }

    /// The document, with the fields that are unknown here.
    pub fn to_text(&self) -> Vec<u8> {
        let mut whole = self.whole.clone();
        let manifests = Value::Array(self.manifests.clone());
        whole.insert("manifests".to_owned(), manifests);
        Value::Object(whole).to_string().into_bytes()
    }

    /// Returns the manifests that can be understood, newest first: new ones are added at the end.
    pub fn manifests(&self) -> impl Iterator<Item = Descriptor> {
        let newest = self.manifests.iter().rev();
        newest.filter_map(|value| Descriptor::deserialize(value).ok())
    }

    /// Returns the manifest of this tag.
    pub fn tagged(&self, tag: &str) -> Option<Descriptor> {
        let mut manifests = self.manifests();
        manifests.find(|manifest| {
            manifest
                .annotations
                .get(NAME)
                .is_some_and(|name| name == tag)
        })
    }

    /// Returns the manifest of this digest, whatever its tag.
    pub fn with_digest(&self, digest: &Digest) -> Option<Descriptor> {
        self.manifests().find(|manifest| manifest.digest == *digest)
    }

    /// Gives a manifest a tag, and takes it from another that had it.
    pub fn tag(&mut self, tag: &str, mut manifest: Descriptor) {
        self.manifests.retain(|one| one["annotations"][NAME] != tag);
        manifest.annotations.insert(NAME.to_owned(), tag.to_owned());
        self.manifests.push(json!(manifest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Digest;

    #[test]
    fn a_tag_is_moved_and_what_others_wrote_stays() {
        let theirs = json!({
            "schemaVersion": 2, "annotations": {"a": "b"},
            "manifests": [{"mediaType": "x", "digest": "sha512:00", "size": 1, "platform": {}}]
        });
        let mut index = LayoutIndex::from_text(theirs.to_string().as_bytes()).unwrap();
        let manifest = |text: &str| Descriptor::new("m", Digest::of(text.as_bytes()), 1);
        for text in ["first", "second"] {
            index.tag("job", manifest(text));
        }
        index.tag("other", manifest("first"));
        let again = LayoutIndex::from_text(&index.to_text()).unwrap();
        let found = |tag| again.tagged(tag).map(|manifest| manifest.digest);
        assert_eq!(found("job"), Some(Digest::of(b"second")));
        assert_eq!(found("other"), Some(Digest::of(b"first")));
        assert_eq!(found("none"), None);
        let text: Value = serde_json::from_slice(&again.to_text()).unwrap();
        assert_eq!(text["manifests"][0], theirs["manifests"][0]);
        assert_eq!(text["annotations"], theirs["annotations"]);
        assert_eq!(again.manifests().count(), 2);
    }

    #[test]
    fn nothing_else_is_an_index() {
        for text in [
            "",
            "[]",
            r#"{"schemaVersion":1,"manifests":[]}"#,
            r#"{"schemaVersion":2}"#,
            r#"{"schemaVersion":2,"manifests":{}}"#,
            r#"{"schemaVersion":2,"manifests":[],"manifests":[]}"#,
        ] {
            LayoutIndex::from_text(text.as_bytes()).unwrap_err();
        }
    }
}
