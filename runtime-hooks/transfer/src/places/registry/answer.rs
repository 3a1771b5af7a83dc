//! The answers of registries beside blobs: small, untrusted documents.

use serde::Deserialize;
use serde_json::Value;
use stasis_oci_image::document::parse;
use ureq::Body;
use ureq::http::Response;

/// The bytes of a refusal that are read.
const MOST_REFUSAL: u64 = 16 << 10;
/// The characters of a refusal that are repeated.
const MOST_WORDS: usize = 200;
/// A hundred thousand short tags.
pub(super) const MOST_TAGS: u64 = 4 << 20;

#[derive(Deserialize)]
struct Tags {
    tags: Option<Vec<String>>,
}

/// Reads all of an answer, if it has at most `most` bytes.
pub(super) fn bytes(mut body: Body, most: u64) -> Result<Vec<u8>, String> {
    let read = body.with_config().limit(most).read_to_vec();
    read.map_err(|error| error.to_string())
}

/// Returns a registry's reason for a refusal, for people.
pub(super) fn refusal(response: Response<Body>) -> String {
    let status = response.status();
    let said = bytes(response.into_body(), MOST_REFUSAL).and_then(|text| parse::<Value>(&text));
    let said = said.unwrap_or_default();
    let reason = &said["errors"][0];
    let Some(code) = reason["code"].as_str() else {
        return format!("it answers {status}");
    };
    let words = format!("{code}: {}", reason["message"].as_str().unwrap_or_default());
    let words: String = words.chars().take(MOST_WORDS).collect();
    format!("it answers {status}, {}", words.escape_debug())
}

/// Reads a token.
pub(super) fn token(response: Response<Body>, most: u64) -> Result<String, String> {
    let answer: Value = parse(&bytes(response.into_body(), most)?)?;
    let token = ["token", "access_token"]
        .into_iter()
        .find_map(|name| answer[name].as_str());
    let token = token.filter(|token| !token.is_empty());
    Ok(token.ok_or("the answer has no token")?.to_owned())
}

/// Reads a repository's tags.
pub(super) fn tags(text: &[u8]) -> Result<Vec<String>, String> {
    let tags: Tags = parse(text)?;
    Ok(tags.tags.unwrap_or_default())
}
