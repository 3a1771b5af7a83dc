//! Requests to one registry, with the user's credentials, repeated where that may help.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stasis_oci_image::OciImageError;
use stasis_oci_image::repository::{RepositoryName, Scheme};
use ureq::config::RedirectAuthHeaders;
use ureq::http::header::{AUTHORIZATION, HeaderMap, HeaderName, WWW_AUTHENTICATE};
use ureq::http::{Method, Request, Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::{Agent, AsSendBody, Body};

use super::challenge::Challenge;
use super::credentials::Credentials;
use super::{answer, roots};

/// Pauses between tries: a registry may restart, or a load balancer lose a connection.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
const CONNECT: Duration = Duration::from_secs(10);
/// A registry hashes a large blob before it answers.
const SILENCE: Duration = Duration::from_secs(300);

/// The registry of a repository.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) agent: Agent,
    pub(super) name: RepositoryName,
    pub(super) credentials: Option<Credentials>,
    /// The value of the header, once the registry has asked for one.
    pub(super) authorization: Mutex<Option<String>>,
    /// The time after which it is no longer asked.
    pub(super) end: Option<Instant>,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: Vec<(HeaderName, String)>,
}

/// The reason why there is no answer.
pub(super) enum Failure {
    /// The next try may succeed.
    Broken(String),
    /// The next try would fail, too.
    Refused(OciImageError),
}

impl Ask {
    pub(super) fn new(method: Method, url: String) -> Self {
        let headers = Vec::new();
        Self {
            method,
            url,
            headers,
        }
    }

    pub(super) fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Connection {
    pub(super) fn new(
        name: RepositoryName,
        credentials: Option<Credentials>,
    ) -> Result<Self, OciImageError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(roots::roots(&name)?)
            .unversioned_rustls_crypto_provider(provider);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(name.scheme() == Scheme::Https)
            .redirect_auth_headers(RedirectAuthHeaders::Never)
            // By default ureq takes a proxy from environment variables.
            .proxy(None)
            .tls_config(tls.build())
            .user_agent(concat!("stasis/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(SILENCE))
            .timeout_per_write(Some(SILENCE));
        Ok(Self {
            agent: agent.build().new_agent(),
            name,
            credentials,
            authorization: Mutex::new(None),
            end: None,
        })
    }

    /// Returns the address of a resource in the repository.
    pub(super) fn url(&self, what: &str) -> String {
        format!("{}/v2/{}/{what}", self.name.base(), self.name.path())
    }

    /// Returns the address that an answer names.
    pub(super) fn resolve(&self, location: &str) -> Option<String> {
        let is_whole = ["https://", "http://"]
            .iter()
            .any(|scheme| location.starts_with(scheme));
        match location.strip_prefix('/') {
            Some(path) => Some(format!("{}/{path}", self.name.base())),
            None => is_whole.then(|| location.to_owned()),
        }
    }

    /// Sends a request without a body. `action` is for messages: "read ...".
    pub(super) fn ask(&self, ask: &Ask, action: &str) -> Result<Response<Body>, OciImageError> {
        self.try_again(action, || self.once(ask, || Ok(())))
    }

    /// Asks for a small document of at most `most` bytes, again if the connection breaks in it;
    /// returns it with its headers, or `None` if it does not exist.
    pub(super) fn ask_for_document(
        &self,
        ask: &Ask,
        action: &str,
        most: u64,
    ) -> Result<Option<(HeaderMap, Vec<u8>)>, OciImageError> {
        self.try_again(action, || {
            let response = self.once(ask, || Ok(()))?;
            match response.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Ok(None),
                _ => return Err(Failure::Refused(self.unexpected(action, response))),
            }
            let (parts, body) = response.into_parts();
            let text = answer::bytes(body, most).map_err(Failure::Broken)?;
            Ok(Some((parts.headers, text)))
        })
    }

    /// Calls `once` until it succeeds, with pauses, a few times.
    pub(super) fn try_again<T>(
        &self,
        action: &str,
        mut once: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, OciImageError> {
        let mut pauses = PAUSES.iter();
        loop {
            match once() {
                Ok(done) => return Ok(done),
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Broken(what)) => {
                    let in_time = |pause: &&Duration| self.left().is_none_or(|left| left > **pause);
                    match pauses.next().filter(in_time) {
                        Some(pause) => thread::sleep(*pause),
                        None => return Err(self.failed(action, what)),
                    }
                }
            }
        }
    }

    /// Asks once; a second time with the authentication that the registry then asks for. An answer
    /// that may soon be another one is a [`Failure::Broken`].
    pub(super) fn once<B: AsSendBody>(
        &self,
        ask: &Ask,
        body: impl Fn() -> std::io::Result<B>,
    ) -> Result<Response<Body>, Failure> {
        let read = |error: std::io::Error| Failure::Broken(error.to_string());
        let mut response = self.send(ask, body().map_err(read)?)?;
        if response.status() == StatusCode::UNAUTHORIZED && self.is_own(&ask.url) {
            let asked = response.headers().get(WWW_AUTHENTICATE);
            let challenge = asked.and_then(|value| Challenge::of(value.to_str().ok()?));
            if self.authorize(challenge)? {
                response = self.send(ask, body().map_err(read)?)?;
            }
        }
        let status = response.status();
        let is_temporary = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        match is_temporary {
            true => Err(Failure::Broken(answer::refusal(response))),
            false => Ok(response),
        }
    }

    fn send(&self, ask: &Ask, body: impl AsSendBody) -> Result<Response<Body>, Failure> {
        let mut request = Request::builder().method(ask.method.clone()).uri(&ask.url);
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        if self.is_own(&ask.url) {
            let known = self
                .authorization
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(value) = &*known {
                request = request.header(AUTHORIZATION, value);
            }
        }
        let request = request.body(body);
        let request = request.map_err(|error| self.refused("ask", &error))?;
        let request = self.agent.configure_request(request);
        let request = request.timeout_global(self.left()).build();
        self.agent.run(request).map_err(|error| self.broken(error))
    }

    /// Returns the time for which it may still be asked, at least 1 ms.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.end.map(|end| left(end).max(Duration::from_millis(1)))
    }

    /// Returns whether this is an address of the registry: no other server gets our credentials.
    pub(super) fn is_own(&self, url: &str) -> bool {
        let rest = url.strip_prefix(&self.name.base());
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    pub(super) fn broken(&self, error: ureq::Error) -> Failure {
        match error {
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::ConnectionFailed
            | ureq::Error::Protocol(_) => Failure::Broken(error.to_string()),
            other => self.refused("ask", &other),
        }
    }

    fn refused(&self, action: &str, error: &dyn std::error::Error) -> Failure {
        Failure::Refused(self.failed(action, error.to_string()))
    }

    /// Makes the error of a request that the registry cannot fulfil.
    pub(super) fn failed(&self, action: &str, what: String) -> OciImageError {
        OciImageError::Registry {
            registry: self.name.to_string(),
            action: action.to_owned(),
            what,
        }
    }

    pub(super) fn denied(&self, action: &str, what: String) -> OciImageError {
        OciImageError::Denied {
            registry: self.name.to_string(),
            action: action.to_owned(),
            what,
        }
    }

    /// Makes the error of an unexpected answer.
    pub(super) fn unexpected(&self, action: &str, response: Response<Body>) -> OciImageError {
        let status = response.status();
        let what = answer::refusal(response);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.denied(action, what),
            _ => self.failed(action, what),
        }
    }
}
