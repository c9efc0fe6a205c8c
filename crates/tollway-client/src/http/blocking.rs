//! The blocking HTTP client: each call returns when its response has arrived. It needs no runtime.
//!
//! ```no_run
//! use tollway_client::http::blocking::Client;
//!
//! let client = Client::new("127.0.0.1:8080")?;
//! let may_log_in = client.spend("Login", "alice", 1)?.allowed();
//! # Ok::<(), tollway_client::ClientError>(())
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollway_core::{ChargeRequest, Decision, Refund, RuleDecision, RuleRequest, Verb};
use tollway_wire::http::{
    BucketReport, BucketsPage, ExportQuery, HttpRuleRequest, ImportCounts, ImportQuery, KeysPage, KeysQuery,
    RecordQuery, RuleExplanation,
};

use super::endpoint::{Endpoint, PreparedRequest, rule_request};
use super::response_reader::{HttpResponse, event_stream_head, read_response};
use super::{DEFAULT_TIMEOUT, EventStream, RawResponse};
use crate::blocking_tcp::BlockingConnection;
use crate::idle::IdleConnections;
#[cfg(feature = "tls")]
use crate::tls::{ClientTls, Tls};
use crate::{ClientError, InvalidAddress, InvalidToken, TIMEOUT_MAX};

/// A client of one server whose calls block the thread. Clones share the connections, and any number of threads may use
/// it, each on a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    idle: IdleConnections<BlockingConnection>,
    #[cfg(feature = "tls")]
    tls: ClientTls,
}

impl Shared {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            idle: IdleConnections::new(),
            #[cfg(feature = "tls")]
            tls: ClientTls::default(),
        }
    }

    /// Returns the same without connections, for another endpoint at the same server.
    fn with_endpoint(&self, endpoint: Endpoint) -> Self {
        Self {
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            ..Self::new(endpoint)
        }
    }
}

impl Client {
    /// Creates a client of the server at `address`: `HOST`, `HOST:PORT`, an `http://` URL or, with the feature `tls`,
    /// an `https://` URL. The port of a host without one is [`DEFAULT_PORT`](super::DEFAULT_PORT), that of a URL
    /// without one is 80 or 443. No connection is opened yet.
    pub fn new(address: &str) -> Result<Self, InvalidAddress> {
        Self::with_timeout(address, DEFAULT_TIMEOUT)
    }

    /// Creates a client whose calls take at most `timeout`, connecting included, and never more than a day. The time to
    /// resolve a name is not included: the system does not let it be limited.
    pub fn with_timeout(address: &str, timeout: Duration) -> Result<Self, InvalidAddress> {
        let shared = Shared::new(Endpoint::parse(address)?);
        Ok(Self { shared: Arc::new(shared), timeout: timeout.min(TIMEOUT_MAX) })
    }

    /// Uses TLS with these certificates, also if the address is no `https://` URL: a client that was given certificates
    /// sends nothing in plain text. Without this, an `https://` URL trusts the authorities of the system, and the
    /// client shows no certificate. Clones from before keep theirs, and their connections.
    #[cfg(feature = "tls")]
    pub fn with_tls(self, tls: Tls) -> Self {
        let endpoint = self.shared.endpoint.clone().with_tls();
        let shared = Shared { tls: ClientTls::given(tls), ..Shared::new(endpoint) };
        Self { shared: Arc::new(shared), ..self }
    }

    /// Sets the token that every request has, as a gate with `tokens` asks for. Clones from before send none, and keep
    /// their connections.
    pub fn with_token(self, token: &str) -> Result<Self, InvalidToken> {
        let shared = self.shared.with_endpoint(self.shared.endpoint.clone().with_token(token)?);
        Ok(Self { shared: Arc::new(shared), ..self })
    }

    /// Returns the address of the server: its host and port.
    pub fn address(&self) -> &str {
        &self.shared.endpoint.address
    }

    /// Takes `cost` from the bucket of `id` under `limit`, if that much is left. An id must be UTF-8: JSON has no other
    /// bytes.
    pub fn spend(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ClientError> {
        self.spend_all(&[ChargeRequest::new(limit, &id, cost)])
    }

    /// Returns the decision that a spend would get, and takes nothing. A cost of 0 asks what is left.
    pub fn check(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ClientError> {
        self.check_all(&[ChargeRequest::new(limit, &id, cost)])
    }

    /// Gives `cost` back to the bucket of `id` under `limit`.
    pub fn refund(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, ClientError> {
        self.refund_all(&[ChargeRequest::new(limit, &id, cost)])
    }

    /// Makes the bucket of `id` under `limit` full again. The [admin gate](super::ADMIN_PORT) answers this.
    pub fn reset(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), ClientError> {
        self.reset_all(&[ChargeRequest::new(limit, &id, 0)])
    }

    /// Takes all of the charges, or none of them. The decision is the strictest of theirs.
    pub fn spend_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Spend, charges, &[])?.decision(charges)
    }

    /// Returns the decision that [`spend_all`](Self::spend_all) would get, and takes nothing.
    pub fn check_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Check, charges, &[])?.decision(charges)
    }

    /// Takes all of the charges and counts the request in all of the configured rules, or does nothing if one of them
    /// denies. [`Decision::decider`] tells which decided.
    pub fn spend_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Spend, charges, rules)?.bill_decision(charges, rules)
    }

    /// Returns the decision that [`spend_bill`](Self::spend_bill) would get, and changes nothing.
    pub fn check_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Check, charges, rules)?.bill_decision(charges, rules)
    }

    /// Gives all of the charges back.
    pub fn refund_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Refund, ClientError> {
        self.bill_raw(Verb::Refund, charges, &[])?.refund()
    }

    /// Makes the buckets of all of the charges full again. Their costs have no effect. The
    /// [admin gate](super::ADMIN_PORT) answers this.
    pub fn reset_all(&self, charges: &[ChargeRequest<'_>]) -> Result<(), ClientError> {
        self.bill_raw(Verb::Reset, charges, &[])?.reset()
    }

    /// Asks the configured rule `name`, with the values of its selectors. A request that is allowed is counted.
    pub fn rule(&self, name: &str, selectors: &[(&str, &str)]) -> Result<RuleDecision, ClientError> {
        self.rule_request(&rule_request(name, selectors))
    }

    /// Asks a configured rule, under another key than its own if the request has one.
    pub fn rule_request(&self, request: &HttpRuleRequest<'_>) -> Result<RuleDecision, ClientError> {
        self.exchange(self.shared.endpoint.rule(request))?.rule_decision()
    }

    /// Returns the parts of a rule and the time until each allows a request. Nothing is counted. The
    /// [admin gate](super::ADMIN_PORT) answers this.
    pub fn explain(&self, request: &HttpRuleRequest<'_>) -> Result<RuleExplanation, ClientError> {
        self.explain_raw(request)?.explanation()
    }

    /// Returns the state of the bucket of `id` under `limit`. The [admin gate](super::ADMIN_PORT) answers this.
    pub fn inspect(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<BucketReport, ClientError> {
        self.inspect_raw(limit, id)?.bucket_report()
    }

    /// Returns one page of the buckets in the store. The [admin gate](super::ADMIN_PORT) answers this.
    pub fn keys(&self, query: &KeysQuery<'_>) -> Result<KeysPage, ClientError> {
        self.keys_raw(query)?.keys_page()
    }

    /// Returns one page of an export of all buckets. The [admin gate](super::ADMIN_PORT) answers this.
    pub fn export_buckets(&self, query: ExportQuery) -> Result<BucketsPage, ClientError> {
        self.exchange(self.shared.endpoint.export_buckets(query))?.buckets_page()
    }

    /// Imports a page of buckets, and returns what became of them. The [admin gate](super::ADMIN_PORT) answers this.
    pub fn import_buckets(
        &self,
        page: &BucketsPage,
        query: ImportQuery,
    ) -> Result<ImportCounts, ClientError> {
        self.exchange(self.shared.endpoint.import_buckets(page, query))?.import_counts()
    }

    /// Spends, checks, refunds or resets, and returns the response before it is decoded. The command line prints it.
    /// Only a spend and a check can have rules.
    pub fn bill_raw(
        &self,
        verb: Verb,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.charge(verb, charges, rules)?)
    }

    /// Asks for an [explanation](Self::explain), and returns the response before it is decoded.
    pub fn explain_raw(&self, request: &HttpRuleRequest<'_>) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.explain(request))
    }

    /// Asks for the [state of a bucket](Self::inspect), and returns the response before it is decoded.
    pub fn inspect_raw(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.inspect(limit, id.as_ref()))
    }

    /// Asks for a [page of buckets](Self::keys), and returns the response before it is decoded.
    pub fn keys_raw(&self, query: &KeysQuery<'_>) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.keys(query))
    }

    /// Watches the server: returns a stream whose first event is the history, and then a snapshot each second. It has a
    /// connection of its own. [`LiveEvent::from_event`] parses an event. The [admin gate](super::ADMIN_PORT) answers
    /// this.
    ///
    /// [`LiveEvent::from_event`]: super::LiveEvent::from_event
    pub fn live(&self) -> Result<EventStream, ClientError> {
        self.events(&self.shared.endpoint.live())
    }

    /// Records the decisions of the server: returns a stream whose first event is a [`RecordingStart`], and then lines
    /// of a trace. It has a connection of its own. The [admin gate](super::ADMIN_PORT) answers this.
    ///
    /// [`RecordingStart`]: super::RecordingStart
    pub fn record(&self, query: &RecordQuery) -> Result<EventStream, ClientError> {
        self.events(&self.shared.endpoint.record(query))
    }

    fn events(&self, request: &PreparedRequest) -> Result<EventStream, ClientError> {
        let deadline = Instant::now() + self.timeout;
        let failed = |error| ClientError::exchanging(self.address(), self.timeout, error);
        let mut connection = self.open(deadline)?;
        connection.write(&request.bytes, deadline).map_err(failed)?;
        let mut inbox = Vec::with_capacity(512);
        loop {
            connection.read(&mut inbox, deadline).map_err(failed)?;
            if let Some(head) = event_stream_head(&inbox) {
                return Ok(EventStream::new(connection, &inbox[head..], self.address(), self.timeout));
            }
            if let Some(response) = self.response(&inbox, request.response_max)? {
                let raw = self.raw(response);
                return Err(raw.problem("a stream of events"));
            }
        }
    }

    fn open(&self, deadline: Instant) -> Result<BlockingConnection, ClientError> {
        let connection = BlockingConnection::open(self.address(), self.timeout, deadline)?;
        #[cfg(feature = "tls")]
        if self.shared.endpoint.tls {
            let (config, name) = self.shared.tls.handshake(self.address())?;
            let secured = connection.secure(config, name, deadline);
            return secured.map_err(|error| ClientError::securing(self.address(), self.timeout, error));
        }
        Ok(connection)
    }

    fn exchange(&self, request: PreparedRequest) -> Result<RawResponse, ClientError> {
        let deadline = Instant::now() + self.timeout;
        let failed = |error| ClientError::exchanging(self.address(), self.timeout, error);
        let mut connection = match self.shared.idle.take(BlockingConnection::is_alive) {
            Some(connection) => connection,
            None => self.open(deadline)?,
        };
        connection.write(&request.bytes, deadline).map_err(failed)?;
        let mut inbox = Vec::with_capacity(512);
        loop {
            connection.read(&mut inbox, deadline).map_err(failed)?;
            if let Some(response) = self.response(&inbox, request.response_max)? {
                if response.reusable {
                    self.shared.idle.put(connection);
                }
                return Ok(self.raw(response));
            }
        }
    }

    /// Reads the response that has arrived, or returns `None` until all of it has.
    fn response(&self, inbox: &[u8], max: usize) -> Result<Option<HttpResponse>, ClientError> {
        let invalid = |source| ClientError::InvalidResponse { address: self.address().to_owned(), source };
        read_response(inbox, max).map_err(invalid)
    }

    fn raw(&self, response: HttpResponse) -> RawResponse {
        RawResponse { status: response.status, body: response.body, address: self.address().to_owned() }
    }
}
