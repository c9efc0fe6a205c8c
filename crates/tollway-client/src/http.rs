//! Over HTTP, one question at a time. On tokio, many: [`awaiting`].

pub mod awaiting;

use std::time::Duration;

use thiserror::Error;
use tollway_core::Verb;
pub use tollway_wire::http::{
    BucketReport, ChargeRequest, HttpRuleRequest, InspectQuery, KeysPage, KeysQuery, ResponseError, Rfc3339,
    RuleExplanation, RulePart, RulePartKind, RuleResponse, ServerResponse, StateSummary,
};
use tollway_wire::http::{ChargeRequests, HttpCommand};
use ureq::http::Response;
use ureq::{Agent, Body};

/// How long an answer may take unless told otherwise. A limiter that takes longer is worse than none.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer to a command that is read. Ours are a few hundred bytes.
const ANSWER_MAX: u64 = 64 << 10;
/// The longest page of keys that is read, or explanation of a rule: a thousand, of ids that may be long.
const PAGE_MAX: u64 = 16 << 20;

/// Asks one server. Keeps its connection open, and may be shared between threads.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    origin: String,
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The server cannot be reached, or hung up.
    #[error("no answer from {origin}")]
    Unreachable {
        /// Where it should be.
        origin: String,
        /// What happened.
        source: Box<ureq::Error>,
    },
    /// The server answered that it has no answer, or something else answered.
    #[error(transparent)]
    Answer(#[from] ResponseError),
}

impl Client {
    /// A client of the server at `address`: a host and a port, or a URL.
    pub fn new(address: &str) -> Self {
        Self::with_timeout(address, TIMEOUT)
    }

    /// A client that waits this long for an answer.
    pub fn with_timeout(address: &str, timeout: Duration) -> Self {
        let config =
            Agent::config_builder().http_status_as_error(false).timeout_global(Some(timeout)).build();
        let origin = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        Self { agent: config.into(), origin: origin.trim_end_matches('/').to_owned() }
    }

    /// Asks for all of `charges` together.
    pub fn ask(&self, verb: Verb, charges: &[ChargeRequest<'_>]) -> Result<ServerResponse, AskError> {
        let (status, body) = self.ask_raw(verb, charges)?;
        Ok(ServerResponse::from_json(status, &body)?)
    }

    /// Asks, and returns the status and the body as they came.
    pub fn ask_raw(&self, verb: Verb, charges: &[ChargeRequest<'_>]) -> Result<(u16, Vec<u8>), AskError> {
        self.post(&format!("/v1/{}", verb.name()), &body(verb, charges), ANSWER_MAX)
    }

    /// Asks whether the limit of a configured rule is reached, and if not, is counted.
    pub fn resolve(&self, asked: &HttpRuleRequest<'_>) -> Result<RuleResponse, AskError> {
        let mut body = Vec::new();
        asked.put_json_without_rule(&mut body);
        let (status, body) = self.post(&asked.path(), &body, ANSWER_MAX)?;
        Ok(RuleResponse::from_json(status, &body)?)
    }

    /// Asks which parts of a rule are reached.
    pub fn explain(&self, asked: &HttpRuleRequest<'_>) -> Result<RuleExplanation, AskError> {
        let (status, body) = self.explain_raw(asked)?;
        Ok(RuleExplanation::from_json(status, &body)?)
    }

    /// Asks which parts of a rule are reached, and returns the status and the body as they came.
    pub fn explain_raw(&self, asked: &HttpRuleRequest<'_>) -> Result<(u16, Vec<u8>), AskError> {
        let mut body = Vec::new();
        asked.put_json(&mut body);
        self.post("/v1/explain", &body, PAGE_MAX)
    }

    /// Looks at one bucket.
    pub fn inspect(&self, bucket: &InspectQuery<'_>) -> Result<BucketReport, AskError> {
        let (status, body) = self.inspect_raw(bucket)?;
        Ok(BucketReport::from_json(status, &body)?)
    }

    /// Looks at one bucket, and returns the status and the body as they came.
    pub fn inspect_raw(&self, bucket: &InspectQuery<'_>) -> Result<(u16, Vec<u8>), AskError> {
        self.get(&format!("/v1/inspect?{}", bucket.to_query()), ANSWER_MAX)
    }

    /// Some of the buckets there are.
    pub fn keys(&self, page: &KeysQuery<'_>) -> Result<KeysPage, AskError> {
        let (status, body) = self.keys_raw(page)?;
        Ok(KeysPage::from_json(status, &body)?)
    }

    /// Some of the buckets there are, as the status and the body came.
    pub fn keys_raw(&self, page: &KeysQuery<'_>) -> Result<(u16, Vec<u8>), AskError> {
        self.get(&format!("/v1/keys?{}", page.to_query()), PAGE_MAX)
    }

    fn post(&self, path: &str, body: &[u8], most: u64) -> Result<(u16, Vec<u8>), AskError> {
        let url = format!("{}{path}", self.origin);
        self.read(self.agent.post(url).content_type("application/json").send(body), most)
    }

    fn get(&self, path: &str, most: u64) -> Result<(u16, Vec<u8>), AskError> {
        self.read(self.agent.get(format!("{}{path}", self.origin)).call(), most)
    }

    fn read(
        &self,
        response: Result<Response<Body>, ureq::Error>,
        most: u64,
    ) -> Result<(u16, Vec<u8>), AskError> {
        let read = response.and_then(|mut response| {
            let body = response.body_mut().with_config().limit(most).read_to_vec()?;
            Ok((response.status().as_u16(), body))
        });
        read.map_err(|error| AskError::Unreachable { origin: self.origin.clone(), source: Box::new(error) })
    }
}

/// What is sent to ask for all of `charges` together.
fn body(verb: Verb, charges: &[ChargeRequest<'_>]) -> Vec<u8> {
    let asks = match charges {
        [ask] => ChargeRequests::One(ask.clone()),
        charges => ChargeRequests::Many(charges.to_vec()),
    };
    let mut body = Vec::new();
    HttpCommand::new(verb, asks).put_json(&mut body);
    body
}
