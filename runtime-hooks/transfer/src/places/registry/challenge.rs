//! The authentication that a registry asks for before it answers (RFC 9110, "WWW-Authenticate").

/// The most bytes that are read: no registry has a longer header.
const MOST: usize = 4096;

/// The authentication that a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A user's name and password with each request.
    Basic,
    /// A token that another server gives out.
    Bearer {
        /// The address of that server.
        realm: String,
        /// The service to name there, if there is one.
        service: Option<String>,
        /// The rights that the token needs, if they are named.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads the header's value.
    pub(super) fn of(header: &str) -> Option<Self> {
        let header = header.get(..MOST.min(header.len()))?;
        let (scheme, parameters) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        let value = |name| parameter(parameters, name);
        match scheme.eq_ignore_ascii_case("bearer") {
            true => Some(Self::Bearer {
                realm: value("realm")?,
                service: value("service"),
                scope: value("scope"),
            }),
            false => None,
        }
    }
}

/// Returns the value of one of `name="value"` between commas. Values may have commas themselves.
fn parameter(parameters: &str, named: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if name.trim().eq_ignore_ascii_case(named) {
            return Some(value.trim().to_owned());
        }
        rest = after.trim_start_matches([',', ' ']);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_registries_ask_for_is_understood() {
        let header = "Bearer realm=\"https://auth.example/token\",service=\"registry.example\",\
                      scope=\"repository:jobs/one:pull,push\"";
        let bearer = Challenge::Bearer {
            realm: "https://auth.example/token".to_owned(),
            service: Some("registry.example".to_owned()),
            scope: Some("repository:jobs/one:pull,push".to_owned()),
        };
        assert_eq!(Challenge::of(header), Some(bearer));
        assert_eq!(Challenge::of("Basic realm=\"all\""), Some(Challenge::Basic));
        assert_eq!(Challenge::of("basic"), Some(Challenge::Basic));
        let unquoted = Challenge::of("bearer service=a, realm=https://b/c");
        assert!(matches!(
            unquoted,
            Some(Challenge::Bearer { scope: None, .. })
        ));
        for other in [
            "",
            "Bearer",
            "Bearer realm=\"x",
            "Digest realm=\"x\"",
            "Bearer =",
        ] {
            assert_eq!(Challenge::of(other), None, "{other}");
        }
    }
}
