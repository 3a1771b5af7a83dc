//! Requests to one registry, with the user's credentials, and again where that may help.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ureq::config::RedirectAuthHeaders;
use ureq::http::header::{AUTHORIZATION, HeaderName, WWW_AUTHENTICATE};
use ureq::http::{Method, Request, Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::{Agent, AsSendBody, Body};

use super::challenge::Challenge;
use super::credentials::Credentials;
use super::name::{RepositoryName, Scheme};
use super::{answer, roots};
use crate::OciImageError;

/// Between two tries: a registry that restarts, or a load balancer that loses a connection.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
const CONNECT: Duration = Duration::from_secs(10);
/// A registry hashes a large blob before it answers.
const SILENCE: Duration = Duration::from_secs(300);
const MOST_TOKEN: u64 = 64 << 10;

/// The registry of a repository.
#[derive(Debug)]
pub(super) struct Connection {
    agent: Agent,
    pub(super) name: RepositoryName,
    credentials: Option<Credentials>,
    /// The header, once the registry has asked for one.
    authorization: Mutex<Option<String>>,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: Vec<(HeaderName, String)>,
}

/// Why there is no answer.
pub(super) enum Failure {
    /// The next try may succeed.
    Broken(String),
    /// It would not.
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
            // By itself it asks environment variables for one.
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
        })
    }

    /// The address of something in the repository.
    pub(super) fn url(&self, what: &str) -> String {
        format!("{}/v2/{}/{what}", self.name.base(), self.name.path())
    }

    /// The address that an answer names.
    pub(super) fn resolve(&self, location: &str) -> Option<String> {
        let is_whole = ["https://", "http://"]
            .iter()
            .any(|scheme| location.starts_with(scheme));
        match location.strip_prefix('/') {
            Some(path) => Some(format!("{}/{path}", self.name.base())),
            None => is_whole.then(|| location.to_owned()),
        }
    }

    /// Asks without a body. `action` is for messages: "read ...".
    pub(super) fn ask(&self, ask: &Ask, action: &str) -> Result<Response<Body>, OciImageError> {
        self.try_again(action, || self.once(ask, || Ok(())))
    }

    /// Does something until it succeeds, with pauses, a few times.
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
                Err(Failure::Broken(what)) => match pauses.next() {
                    Some(pause) => thread::sleep(*pause),
                    None => return Err(self.failed(action, what)),
                },
            }
        }
    }

    /// Asks once; a second time with what the registry then asks for. An answer that may be another
    /// one soon is a [`Failure::Broken`].
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
        self.agent.run(request).map_err(|error| self.broken(error))
    }

    /// Nobody else is told who we are.
    fn is_own(&self, url: &str) -> bool {
        let rest = url.strip_prefix(&self.name.base());
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Gets ready to answer a challenge; `false`: there is nothing to answer with, and the
    /// registry's refusal is the answer.
    fn authorize(&self, challenge: Option<Challenge>) -> Result<bool, Failure> {
        let value = match (challenge, &self.credentials) {
            (Some(Challenge::Basic), Some(Credentials::Basic(basic))) if self.may_tell() => {
                format!("Basic {basic}")
            }
            (
                Some(Challenge::Bearer {
                    realm,
                    service,
                    scope,
                }),
                _,
            ) => {
                let token = self.token(&realm, service.as_deref(), scope.as_deref())?;
                format!("Bearer {token}")
            }
            _ => return Ok(false),
        };
        *self
            .authorization
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(true)
    }

    /// Passwords go over TLS, or nowhere.
    fn may_tell(&self) -> bool {
        self.name.scheme() == Scheme::Https || self.name.is_here()
    }

    fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<String, Failure> {
        let asked = [("service", service), ("scope", scope)];
        let asked = asked
            .iter()
            .filter_map(|(name, value)| Some((*name, (*value)?)));
        // The registry names who gives tokens, but not that he is told without TLS.
        let may_tell = realm.starts_with("https://") || (self.is_own(realm) && self.may_tell());
        let credentials = self.credentials.as_ref().filter(|_| may_tell);
        let answered = match credentials {
            Some(Credentials::Refresh(token)) => {
                let own = [("grant_type", "refresh_token"), ("client_id", "stasis")];
                let own = own.into_iter().chain([("refresh_token", token.as_str())]);
                self.agent.post(realm).send_form(asked.chain(own))
            }
            Some(Credentials::Basic(basic)) => {
                let request = self.agent.get(realm).query_pairs(asked);
                request
                    .header(AUTHORIZATION, format!("Basic {basic}"))
                    .call()
            }
            None => self.agent.get(realm).query_pairs(asked).call(),
        };
        let response = answered.map_err(|error| self.broken(error))?;
        if !response.status().is_success() {
            let what = answer::refusal(response);
            return Err(Failure::Refused(self.denied("get a token", what)));
        }
        let token = answer::token(response, MOST_TOKEN);
        token.map_err(|what| Failure::Refused(self.failed("get a token", what)))
    }

    fn broken(&self, error: ureq::Error) -> Failure {
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

    /// It cannot do what was asked.
    pub(super) fn failed(&self, action: &str, what: String) -> OciImageError {
        OciImageError::Registry {
            registry: self.name.to_string(),
            action: action.to_owned(),
            what,
        }
    }

    fn denied(&self, action: &str, what: String) -> OciImageError {
        OciImageError::Denied {
            registry: self.name.to_string(),
            action: action.to_owned(),
            what,
        }
    }

    /// What an answer says that is not the one hoped for.
    pub(super) fn unexpected(&self, action: &str, response: Response<Body>) -> OciImageError {
        let status = response.status();
        let what = answer::refusal(response);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.denied(action, what),
            _ => self.failed(action, what),
        }
    }
}
