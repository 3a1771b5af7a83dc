//! The user's credentials for a registry, where podman, skopeo and Docker keep them.

use std::fs::File;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use stasis_oci_image::OciImageError;
use stasis_oci_image::RepositoryName;

/// Root's files of credentials, found without any environment variable: podman's until the next
/// boot and for longer, and Docker's.
const FILES: [&str; 3] = [
    "/run/containers/0/auth.json",
    "/root/.config/containers/auth.json",
    "/root/.docker/config.json",
];

/// The user's proof of identity.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A name and a password, as they are sent.
    Basic(String),
    /// Docker's identity token, which is exchanged for others.
    Refresh(String),
}

/// Shows neither.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Basic(_) => "Basic",
            Self::Refresh(_) => "Refresh",
        })
    }
}

impl Credentials {
    /// Finds the credentials for a repository: in this file, or in the first of the usual ones that
    /// has any. Returns none for a registry that is asked without TLS, unless it is on this
    /// machine: an attacker in between could name another server of tokens, and read the token.
    pub(super) fn find(
        name: &RepositoryName,
        file: Option<&Path>,
    ) -> Result<Option<Self>, OciImageError> {
        if !name.keeps_secrets() {
            return Ok(None);
        }
        if let Some(file) = file {
            return in_file(name, file);
        }
        for file in FILES
            .map(Path::new)
            .into_iter()
            .filter(|file| file.exists())
        {
            if let Some(these) = in_file(name, file)? {
                return Ok(Some(these));
            }
        }
        Ok(None)
    }
}

fn in_file(name: &RepositoryName, path: &Path) -> Result<Option<Credentials>, OciImageError> {
    for key in keys(name) {
        let file = File::open(path).map_err(OciImageError::io("read", path))?;
        match get_credential_from_reader(file, &key) {
            Ok(DockerCredential::UsernamePassword(user, password)) => {
                let basic = STANDARD.encode(format!("{user}:{password}"));
                return Ok(Some(Credentials::Basic(basic)));
            }
            Ok(DockerCredential::IdentityToken(token)) => {
                return Ok(Some(Credentials::Refresh(token)));
            }
            Err(CredentialRetrievalError::NoCredentialConfigured) => {}
            Err(error) => return Err(unreadable(path, &error)),
        }
    }
    Ok(None)
}

/// Returns the keys that podman looks for: the repository, those above it, the registry.
fn keys(name: &RepositoryName) -> Vec<String> {
    let mut key = format!("{}/{}", name.host(), name.path());
    let mut keys = vec![key.clone()];
    while let Some((above, _)) = key.rsplit_once('/') {
        key = above.to_owned();
        keys.push(key.clone());
    }
    keys
}

/// The message of a helper program may have a password in it, and is not repeated.
fn unreadable(path: &Path, error: &CredentialRetrievalError) -> OciImageError {
    let what = match error {
        CredentialRetrievalError::HelperFailure { helper, .. } => {
            format!("the program docker-credential-{helper} failed")
        }
        other => other.to_string(),
    };
    OciImageError::Credentials {
        path: PathBuf::from(path),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_credentials_are_taken() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("auth.json");
        let auth = |text: &str| STANDARD.encode(text);
        let text = format!(
            r#"{{"auths":{{"r.example":{{"auth":"{}"}},"r.example/jobs":{{"auth":"{}"}}}}}}"#,
            auth("all:1"),
            auth("jobs:2")
        );
        std::fs::write(&file, text).unwrap();
        let find = |name: &str| Credentials::find(&name.parse().unwrap(), Some(&file)).unwrap();
        let basic = |text: &str| Some(Credentials::Basic(auth(text)));
        assert_eq!(find("r.example/jobs/one"), basic("jobs:2"));
        assert_eq!(find("r.example/other"), basic("all:1"));
        assert_eq!(find("s.example/jobs/one"), None);
        assert_eq!(find("http://r.example/other"), None);
        std::fs::write(&file, "{").unwrap();
        let name = "r.example/a".parse().unwrap();
        let error = Credentials::find(&name, Some(&file)).unwrap_err();
        assert!(
            matches!(error, OciImageError::Credentials { .. }),
            "{error}"
        );
        let none = directory.path().join("none");
        Credentials::find(&name, Some(&none)).unwrap_err();
    }
}
