//! Options in CRIU's configuration files that break checkpoints and restores.

use std::path::Path;

use stasis_engine::low_level::criu_settings::{CriuSettings, DIRECTORY};

use super::{Finding, fault, warning};

/// CRIU reads the first file in every run (criu(8), "CONFIGURATION FILES"); runc and crun name the
/// others in their requests.
const DEFAULT: &str = "default.conf";
const OF_REQUEST: [&str; 2] = ["runc.conf", "crun.conf"];
/// Options by which no image is written, or not where the request asks, or its processes go on
/// beside the processes restored from it, or a restore takes pages out of it.
const HARMFUL: [&str; 8] = [
    "auto-dedup",
    "check-only",
    "lazy-pages",
    "leave-running",
    "leave-stopped",
    "page-server",
    "prev-images-dir",
    "stream",
];
/// Options of a request, which only a file named in the request overrides.
const IMAGES: &str = "images-dir";
const LOG: [&str; 2] = ["work-dir", "log-file"];

pub(super) fn findings() -> Vec<Finding> {
    in_directory(Path::new(DIRECTORY))
}

fn in_directory(directory: &Path) -> Vec<Finding> {
    let all = [DEFAULT].into_iter().chain(OF_REQUEST);
    all.flat_map(|name| of(name, &CriuSettings::read(&directory.join(name))))
        .collect()
}

fn of(name: &str, settings: &CriuSettings) -> Vec<Finding> {
    let is_of_request = OF_REQUEST.contains(&name);
    let path = settings.path().display();
    let found = settings.options().filter_map(|(option, value)| {
        let evidence = |why: &str| format!("{path} has {option} {value}").trim().to_owned() + why;
        Some(match option {
            "libdir" => warning(
                "criu-configuration",
                evidence(" instead of the directory of stasis"),
                "remove that line: CRIU looks for plugins in one directory",
            ),
            _ if HARMFUL.contains(&option) || is_of_request && option == IMAGES => fault(
                "criu-option",
                evidence(": images are not written or restored as requested"),
                "remove that line",
            ),
            _ if is_of_request && LOG.contains(&option) => warning(
                "criu-log",
                evidence(" instead of a file for each operation"),
                "remove that line: operations at the same time overwrite each other's log",
            ),
            _ => return None,
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_restores_is_found_where_it_counts() {
        let directory = tempfile::tempdir().unwrap();
        let ids = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
            let found = in_directory(directory.path());
            std::fs::remove_file(directory.path().join(name)).unwrap();
            found.into_iter().map(|it| it.id).collect::<Vec<_>>()
        };
        let text = "tcp-established\nimages-dir /i\nlog-file=/l # x\n# lazy-pages\nauto-dedup\n";
        let all = ["criu-option", "criu-log", "criu-option"];
        assert_eq!(ids("runc.conf", text), all);
        assert_eq!(ids("crun.conf", text), all);
        assert_eq!(ids("default.conf", text), ["criu-option"]);
        assert_eq!(ids("default.conf", "libdir /x"), ["criu-configuration"]);
        assert_eq!(ids("podman.conf", text), [""; 0]);
    }
}
