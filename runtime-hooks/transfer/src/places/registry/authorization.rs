//! Authenticates us to a registry that asks for it.

use std::sync::PoisonError;

use ureq::http::header::AUTHORIZATION;

use super::answer;
use super::challenge::Challenge;
use super::connection::{Connection, Failure};
use super::credentials::Credentials;

const MOST_TOKEN: u64 = 64 << 10;

impl Connection {
    /// Prepares the answer to a challenge; `false` if there is none, and the registry's refusal is
    /// the result.
    pub(super) fn authorize(&self, challenge: Option<Challenge>) -> Result<bool, Failure> {
        let value = match challenge {
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                let token = self.token(&realm, service.as_deref(), scope.as_deref())?;
                format!("Bearer {token}")
            }
            Some(Challenge::Basic) => match &self.credentials {
                Some(Credentials::Basic(basic)) => format!("Basic {basic}"),
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        *self
            .authorization
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(true)
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
        // The registry names the server of tokens, but may not have it get credentials without TLS.
        let may_tell = realm.starts_with("https://") || self.is_own(realm);
        let credentials = self.credentials.as_ref().filter(|_| may_tell);
        let answered = match credentials {
            Some(Credentials::Refresh(token)) => {
                let own = [("grant_type", "refresh_token"), ("client_id", "stasis")];
                let own = own.into_iter().chain([("refresh_token", token.as_str())]);
                let request = self.agent.post(realm).config();
                let request = request.timeout_global(self.left()).build();
                request.send_form(asked.chain(own))
            }
            others => {
                let request = self.agent.get(realm).query_pairs(asked).config();
                let request = request.timeout_global(self.left()).build();
                match others {
                    Some(Credentials::Basic(basic)) => {
                        request.header(AUTHORIZATION, format!("Basic {basic}"))
                    }
                    _ => request,
                }
                .call()
            }
        };
        let response = answered.map_err(|error| self.broken(error))?;
        if !response.status().is_success() {
            let what = answer::refusal(response);
            return Err(Failure::Refused(self.denied("get a token", what)));
        }
        let token = answer::token(response, MOST_TOKEN);
        token.map_err(|what| Failure::Refused(self.failed("get a token", what)))
    }
}
