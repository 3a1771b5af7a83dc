//! JSON in which no object has a key twice.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

/// Any value; serde_json limits how deep it is.
pub(super) struct EachOnce;

impl<'de> Deserialize<'de> for EachOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = EachOnce;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_i64<E>(self, _: i64) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_u64<E>(self, _: u64) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_f64<E>(self, _: f64) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_str<E>(self, _: &str) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_unit<E>(self) -> Result<EachOnce, E> {
        Ok(EachOnce)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EachOnce, A::Error> {
        while list.next_element::<EachOnce>()?.is_some() {}
        Ok(EachOnce)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EachOnce, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(de::Error::custom(format!("the key {key:?} is there twice")));
            }
            keys.insert(key);
            map.next_value::<EachOnce>()?;
        }
        Ok(EachOnce)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use serde_json::Value;

    #[test]
    fn a_key_is_there_once() {
        parse::<Value>(br#"{"a":[{"b":1},{"b":-2.5}],"c":{"a":null,"b":true}}"#).unwrap();
        for twice in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"b":{"a":1,"c":2,"a":3}}]"#,
        ] {
            let error = parse::<Value>(twice.as_bytes()).unwrap_err();
            assert!(error.contains(r#""a" is there twice"#), "{error}");
        }
    }

    #[test]
    fn neither_depth_nor_rubbish_is_read() {
        for text in [
            "[".repeat(1 << 20),
            "{\"a\":".repeat(1000),
            "{} {}".to_owned(),
        ] {
            parse::<Value>(text.as_bytes()).unwrap_err();
        }
    }
}
