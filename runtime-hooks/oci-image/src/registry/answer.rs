//! What registries answer beside blobs: small documents of somebody else's.

use serde::Deserialize;
use ureq::Body;
use ureq::http::Response;

use crate::document::parse;

/// What is read of a refusal.
const MOST_REFUSAL: u64 = 16 << 10;
/// What is repeated of it.
const MOST_WORDS: usize = 200;
/// A hundred thousand short tags.
pub(super) const MOST_TAGS: u64 = 4 << 20;

#[derive(Deserialize)]
struct Refusal {
    errors: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    code: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct Tags {
    tags: Option<Vec<String>>,
}

/// All of an answer, if it has at most so many bytes.
pub(super) fn bytes(mut body: Body, most: u64) -> Result<Vec<u8>, String> {
    let read = body.with_config().limit(most).read_to_vec();
    read.map_err(|error| error.to_string())
}

/// Why a registry refuses, for people.
pub(super) fn refusal(response: Response<Body>) -> String {
    let status = response.status();
    let said = bytes(response.into_body(), MOST_REFUSAL).ok();
    let reasons = said.and_then(|text| parse::<Refusal>(&text).ok());
    let Some(reason) = reasons.and_then(|refusal| refusal.errors.into_iter().next()) else {
        return format!("it answers {status}");
    };
    let words = format!("{}: {}", reason.code, reason.message);
    let words: String = words.chars().take(MOST_WORDS).collect();
    format!("it answers {status}, {}", words.escape_debug())
}

/// A token.
pub(super) fn token(response: Response<Body>, most: u64) -> Result<String, String> {
    let Token {
        token,
        access_token,
    } = parse(&bytes(response.into_body(), most)?)?;
    let token = token.or(access_token).filter(|token| !token.is_empty());
    token.ok_or_else(|| "the answer has no token".to_owned())
}

/// A repository's tags.
pub(super) fn tags(text: &[u8]) -> Result<Vec<String>, String> {
    let tags: Tags = parse(text)?;
    Ok(tags.tags.unwrap_or_default())
}
