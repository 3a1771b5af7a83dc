//! CRIU's configuration files (criu(8), "CONFIGURATION FILES"), as far as they matter here: the
//! place of CRIU's log, and options that prevent making or restoring an image.

use std::path::{Path, PathBuf};

use stasis_config::Flavor;
use stasis_linux::file;

/// Their directory, unless a container's annotation names a file.
pub const DIRECTORY: &str = "/etc/criu";
const MAX_BYTES: u64 = 1 << 20;

/// The options in a file.
#[derive(Debug, Default)]
pub struct CriuSettings {
    path: PathBuf,
    text: String,
}

impl CriuSettings {
    /// Reads a file. A missing or unreadable file is empty, as it is for CRIU.
    pub fn read(path: &Path) -> Self {
        let text = file::read(path, MAX_BYTES).ok().flatten();
        Self {
            path: path.to_owned(),
            text: String::from_utf8_lossy(&text.unwrap_or_default()).into_owned(),
        }
    }

    /// Reads the file that the low-level runtime names in its request, whose places precede the
    /// request's (criu/cr-service.c): the container's annotation, which may name none, or the
    /// runtime's own (runc's `handleCriuConfigurationFile`, crun's `handle_criu_config_file`).
    pub(crate) fn of_request(flavor: Flavor, annotated: Option<&Path>) -> Self {
        let own = match flavor {
            Flavor::Runc => &["runc.conf"][..],
            Flavor::Crun => &["crun.conf", "runc.conf"],
        };
        let own = own.iter().map(|name| Path::new(DIRECTORY).join(name));
        let named = annotated.map(Path::to_owned);
        named
            .or_else(|| own.into_iter().find(|path| path.exists()))
            .map_or_else(Self::default, |path| Self::read(&path))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its options with their values: one in a line, as on CRIU's command line without `--`.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        options(&self.text)
    }

    /// The value of an option: the last one counts.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let of_name = self.options().filter(|(option, _)| *option == name);
        of_name.map(|(_, value)| value).last()
    }
}

/// The options in the text of a file, each with its value.
pub(crate) fn options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let end = line.find(|c: char| c.is_whitespace() || c == '=');
        let (name, value) = line.split_at(end.unwrap_or(line.len()));
        let around = |c: char| c.is_whitespace() || "=\"".contains(c);
        (name, value.trim_matches(around))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_request_says_where_the_log_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.conf");
        let text = "# log-file no\n\tlog-file \"/var/log/a\" # because\nlog-file=/var/log/b\n";
        std::fs::write(&path, text).unwrap();
        let settings = CriuSettings::of_request(Flavor::Crun, Some(&path));
        assert_eq!(settings.value("log-file"), Some("/var/log/b"));
        assert_eq!(settings.value("work-dir"), None);
        let none = CriuSettings::of_request(Flavor::Runc, Some(Path::new("")));
        assert_eq!(none.options().count(), 0);
    }
}
