//! Keys that this version no longer has.
//!
//! A change that removes a key, or a whole table, adds it to [`REMOVED`] with advice for the user:
//! a file that still has it is refused, and the error names both.

/// Each key as it is written with its table, and the sentence that follows it in the error.
const REMOVED: &[(&str, &str)] = &[
    (
        "deadlines.lock_try_ms",
        "processes are locked by steps until deadlines.lock_ms has passed; delete the line",
    ),
    (
        "memory.raise_limits",
        "raise a limit in the engine (podman update --memory, docker update --memory), or let many \
         threads copy (gpu_checkpoint.path = \"auto\"); delete the line",
    ),
    (
        "preflight.frozen_above",
        "a container below a frozen cgroup is always refused, and the error names the cgroup; \
         delete the line",
    ),
    (
        "bulk_memory.enabled",
        "where the driver is to copy GPU contents and CRIU to dump them, write \
         gpu_checkpoint.path = \"driver\"",
    ),
    (
        "bulk_memory.heaps",
        "CRIU dumps the memory of programs; delete the line",
    ),
    (
        "bulk_memory.minimum_mib",
        "what goes into files of stasis is decided by gpu_checkpoint.minimum_mib alone; delete the \
         line",
    ),
    (
        "bulk_memory.tier",
        "name the directory of GPU contents that are to lie apart from images in \
         gpu_contents.directory, on a tmpfs or on a disk; without one they lie in the image",
    ),
    ("bulk_memory.directory", "write gpu_contents.directory"),
    (
        "bulk_memory.ram_limit_percent",
        "write gpu_contents.staging_percent",
    ),
    (
        "bulk_memory.keep",
        "`stasis gc` removes images with their GPU contents; delete the line",
    ),
    (
        "bulk_memory.max_bytes",
        "`stasis gc` removes images with their GPU contents; delete the line",
    ),
    (
        "bulk_memory",
        "the table is [gpu_contents] now, with threads, compression_level and plugin as before",
    ),
    (
        "gpu_checkpoint.huge_pages",
        "stasis leaves the switch of the machine alone; delete the line",
    ),
];

/// Returns the first removed key in a text, and the advice. A text that is no TOML has none.
pub(crate) fn find(text: &str) -> Option<(&'static str, &'static str)> {
    let table: toml::Table = text.parse().ok()?;
    let has = |key: &str| match key.split_once('.') {
        Some((name, key)) => {
            let inner = table.get(name).and_then(toml::Value::as_table);
            inner.is_some_and(|inner| inner.contains_key(key))
        }
        None => table.contains_key(key),
    };
    REMOVED.iter().copied().find(|(key, _)| has(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use std::path::Path;

    #[test]
    fn every_one_is_named_with_what_to_do_instead() {
        for (key, instead) in REMOVED {
            let text = format!("{key} = 1\n");
            let error = Settings::parse(Path::new("stasis.toml"), &text).unwrap_err();
            let expected = format!("stasis.toml: {key} is not a setting any more: {instead}");
            assert_eq!(error.to_string(), expected);
        }
        let (key, _) = find("[bulk_memory]\nthreads = 4\n").unwrap();
        assert_eq!(key, "bulk_memory");
        assert_eq!(find("[memory]\n[preflight]\nexec = \"allow\"\n"), None);
    }
}
