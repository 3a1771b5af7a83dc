//! The names of a registry and of its repositories.

use std::fmt;
use std::str::FromStr;

/// The limit that OCI's distribution specification recommends, with the registry.
const MOST: usize = 255;

/// A repository of a registry: `registry.example:5000/jobs/one`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryName {
    scheme: Scheme,
    host: String,
    path: String,
}

/// How a registry is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Over TLS, unless the user writes `http://`.
    Https,
    /// Without TLS.
    Http,
}

impl RepositoryName {
    /// How the registry is reached.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the registry, with its port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the repository in it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the beginning of the addresses of the registry.
    pub fn base(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Https => "https",
            Scheme::Http => "http",
        };
        format!("{scheme}://{}", self.host)
    }

    /// Returns whether it is the same repository, with or without TLS.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.host, &self.path) == (&other.host, &other.path)
    }

    /// Returns whether a password is safe with it: no attacker in between reads it, or changes the
    /// address to which it is sent next.
    pub fn keeps_secrets(&self) -> bool {
        self.scheme == Scheme::Https || self.is_here()
    }

    /// Returns whether requests to it stay on this machine.
    fn is_here(&self) -> bool {
        let without_port = self.host.rsplit_once(':').map(|(host, _)| host);
        let is_one = |host: &str| ["localhost", "127.0.0.1", "[::1]"].contains(&host);
        is_one(&self.host) || without_port.is_some_and(is_one)
    }
}

impl FromStr for RepositoryName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = match text.strip_prefix("http://") {
            Some(rest) => (Scheme::Http, rest),
            None => (Scheme::Https, text.strip_prefix("https://").unwrap_or(text)),
        };
        let split = rest.split_once('/');
        let (host, path) = split.ok_or("it has no repository after the registry's name")?;
        if !is_host(host) {
            return Err("its registry is not a name with a dot or a port, such as \
                        registry.example or localhost:5000");
        }
        if rest.len() > MOST || !path.split('/').all(is_component) {
            return Err("its repository is not made of a-z, 0-9 and ._- between slashes");
        }
        Ok(Self {
            scheme,
            host: host.to_owned(),
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Https => "",
            Scheme::Http => "http://",
        };
        write!(f, "{scheme}{}/{}", self.host, self.path)
    }
}

/// Recognises a registry by the first part of a repository, as Docker does.
fn is_host(text: &str) -> bool {
    let is_one = |one: char| one.is_ascii_alphanumeric() || ".-:[]".contains(one);
    let tells = text == "localhost" || text.contains('.') || text.contains(':');
    tells && text.chars().all(is_one)
}

fn is_component(text: &str) -> bool {
    let is_first = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
    let is_other = |one: char| is_first(one) || "._-".contains(one);
    text.starts_with(is_first) && text.ends_with(is_first) && text.chars().all(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_told_from_its_registry() {
        let name: RepositoryName = "registry.example:5000/jobs/one".parse().unwrap();
        assert_eq!(name.base(), "https://registry.example:5000");
        assert_eq!((name.path(), name.is_here()), ("jobs/one", false));
        let name: RepositoryName = "http://127.0.0.1:5000/a".parse().unwrap();
        assert_eq!(name.to_string(), "http://127.0.0.1:5000/a");
        assert!(name.is_here());
    }

    #[test]
    fn nothing_else_is_a_repository() {
        for text in [
            "",
            "registry.example",
            "jobs/one",
            "registry.example/",
            "registry.example/a//b",
            "registry.example/../b",
            "registry.example/A",
            "user@registry.example/a",
            "registry.example/a?b=c",
            "ftp://registry.example/a",
            &format!("registry.example/{}", "a".repeat(255)),
        ] {
            assert!(text.parse::<RepositoryName>().is_err(), "{text}");
        }
    }
}
