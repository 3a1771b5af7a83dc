//! The fields that docs/commands.md has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const COMMANDS: &str = include_str!("../../../../docs/commands.md");

/// A table's fields, each with the words in code beside it.
type Fields = BTreeMap<String, BTreeSet<String>>;

/// Lists the faults of the fields of these objects: each field has to be in the section's table,
/// each field within a field among the words beside that one, and each field of the table, except
/// for the `absent` ones, in one of the objects.
pub(crate) fn faults(section: &str, objects: &[Value], absent: &[&str]) -> Vec<String> {
    let documented = table_of(section);
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for (field, value) in objects.iter().filter_map(Value::as_object).flatten() {
        seen.insert(field.as_str());
        match documented.get(field) {
            Some(words) => within(&documented, field, words, value, &mut faults),
            None => faults.push(format!("{section}: {field} is not documented")),
        }
    }
    let fields = documented.keys().map(String::as_str);
    let missing = fields.filter(|field| !(field.contains('[') || absent.contains(field)));
    let missing = missing.filter(|field| !seen.contains(field));
    faults.extend(missing.map(|field| format!("{section}: there is no {field}")));
    faults
}

fn within(
    documented: &Fields,
    field: &str,
    words: &BTreeSet<String>,
    value: &Value,
    faults: &mut Vec<String>,
) {
    match value {
        Value::Array(values) => {
            let each = format!("{field}[]");
            for value in values {
                within(documented, &each, words, value, faults);
            }
        }
        Value::Object(values) => {
            for (inner, value) in values {
                let path = format!("{field}.{inner}");
                if !words.contains(inner) {
                    faults.push(format!("{path} is not documented"));
                }
                let words = documented.get(&path).unwrap_or(words);
                within(documented, &path, words, value, faults);
            }
        }
        _ => {}
    }
}

fn table_of(section: &str) -> Fields {
    let mut sections = COMMANDS.split("\n## ");
    let section = sections.find(|text| text.starts_with(section));
    let rows = section.into_iter().flat_map(str::lines);
    let rows = rows.filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let fields = rows.flat_map(|(fields, words)| {
        let words: BTreeSet<String> = code(words).collect();
        let fields: Vec<String> = code(&format!("`{fields}")).collect();
        fields.into_iter().map(move |field| (field, words.clone()))
    });
    fields.collect()
}

/// Yields the words between backticks.
fn code(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}
