//! The HTTP client for tokio: it keeps connections open, and uses each for one request at a time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tollway_core::{ChargeRequest, Decision, Refund, RuleDecision, RuleRequest, Verb};
use tollway_wire::http::{BucketReport, HttpRuleRequest, KeysPage, KeysQuery, RuleExplanation};

use super::endpoint::{Endpoint, PreparedRequest, rule_request};
use super::response_reader::{HttpResponse, read_response};
use super::stream::HttpStream;
use super::{CONNECTIONS_MAX, DEFAULT_TIMEOUT, RawResponse};
use crate::connect::connect;
use crate::idle::IdleConnections;
#[cfg(feature = "tls")]
use crate::tls::{ClientTls, Tls};
use crate::{ClientError, InvalidAddress, InvalidToken, TIMEOUT_MAX};

/// A client that asks one server, for programs on tokio. Clones share the connections, and any number of tasks may use
/// it.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    /// The permits to use a connection.
    permits: Semaphore,
    idle: IdleConnections<HttpStream>,
    #[cfg(feature = "tls")]
    tls: ClientTls,
}

impl Shared {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            permits: Semaphore::new(CONNECTIONS_MAX),
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

    /// Creates a client whose calls take at most `timeout`, connecting included, and never more than a day.
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
    pub async fn spend(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ClientError> {
        self.spend_all(&[ChargeRequest::new(limit, &id, cost)]).await
    }

    /// Returns the decision that a spend would get, and takes nothing. A cost of 0 asks what is left.
    pub async fn check(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ClientError> {
        self.check_all(&[ChargeRequest::new(limit, &id, cost)]).await
    }

    /// Gives `cost` back to the bucket of `id` under `limit`.
    pub async fn refund(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, ClientError> {
        self.refund_all(&[ChargeRequest::new(limit, &id, cost)]).await
    }

    /// Makes the bucket of `id` under `limit` full again. The [admin gate](super::ADMIN_PORT) answers this.
    pub async fn reset(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), ClientError> {
        self.reset_all(&[ChargeRequest::new(limit, &id, 0)]).await
    }

    /// Takes all of the charges, or none of them. The decision is the strictest of theirs.
    pub async fn spend_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Spend, charges, &[]).await?.decision(charges)
    }

    /// Returns the decision that [`spend_all`](Self::spend_all) would get, and takes nothing.
    pub async fn check_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Check, charges, &[]).await?.decision(charges)
    }

    /// Takes all of the charges and counts the request in all of the configured rules, or does nothing if one of them
    /// denies. [`Decision::decider`] tells which decided.
    pub async fn spend_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Spend, charges, rules).await?.bill_decision(charges, rules)
    }

    /// Returns the decision that [`spend_bill`](Self::spend_bill) would get, and changes nothing.
    pub async fn check_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, ClientError> {
        self.bill_raw(Verb::Check, charges, rules).await?.bill_decision(charges, rules)
    }

    /// Gives all of the charges back.
    pub async fn refund_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Refund, ClientError> {
        self.bill_raw(Verb::Refund, charges, &[]).await?.refund()
    }

    /// Makes the buckets of all of the charges full again. Their costs have no effect. The
    /// [admin gate](super::ADMIN_PORT) answers this.
    pub async fn reset_all(&self, charges: &[ChargeRequest<'_>]) -> Result<(), ClientError> {
        self.bill_raw(Verb::Reset, charges, &[]).await?.reset()
    }

    /// Asks the configured rule `name`, with the values of its selectors. A request that is allowed is counted.
    pub async fn rule(&self, name: &str, selectors: &[(&str, &str)]) -> Result<RuleDecision, ClientError> {
        self.rule_request(&rule_request(name, selectors)).await
    }

    /// Asks a configured rule, under another key than its own if the request has one.
    pub async fn rule_request(&self, request: &HttpRuleRequest<'_>) -> Result<RuleDecision, ClientError> {
        self.exchange(self.shared.endpoint.rule(request)).await?.rule_decision()
    }

    /// Returns the parts of a rule and the time until each allows a request. Nothing is counted. The
    /// [admin gate](super::ADMIN_PORT) answers this.
    pub async fn explain(&self, request: &HttpRuleRequest<'_>) -> Result<RuleExplanation, ClientError> {
        self.explain_raw(request).await?.explanation()
    }

    /// Returns the state of the bucket of `id` under `limit`. The [admin gate](super::ADMIN_PORT) answers this.
    pub async fn inspect(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<BucketReport, ClientError> {
        self.inspect_raw(limit, id).await?.bucket_report()
    }

    /// Returns one page of the buckets in the store. The [admin gate](super::ADMIN_PORT) answers this.
    pub async fn keys(&self, query: &KeysQuery<'_>) -> Result<KeysPage, ClientError> {
        self.keys_raw(query).await?.keys_page()
    }

    /// Spends, checks, refunds or resets, and returns the response before it is decoded. The command line prints it.
    /// Only a spend and a check can have rules.
    pub async fn bill_raw(
        &self,
        verb: Verb,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.charge(verb, charges, rules)?).await
    }

    /// Asks for an [explanation](Self::explain), and returns the response before it is decoded.
    pub async fn explain_raw(&self, request: &HttpRuleRequest<'_>) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.explain(request)).await
    }

    /// Asks for the [state of a bucket](Self::inspect), and returns the response before it is decoded.
    pub async fn inspect_raw(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.inspect(limit, id.as_ref())).await
    }

    /// Asks for a [page of buckets](Self::keys), and returns the response before it is decoded.
    pub async fn keys_raw(&self, query: &KeysQuery<'_>) -> Result<RawResponse, ClientError> {
        self.exchange(self.shared.endpoint.keys(query)).await
    }

    async fn exchange(&self, request: PreparedRequest) -> Result<RawResponse, ClientError> {
        let deadline = Instant::now() + self.timeout;
        let timed_out =
            |_| ClientError::TimedOut { address: self.address().to_owned(), timeout: self.timeout };
        let permit = timeout_at(deadline, self.shared.permits.acquire()).await.map_err(timed_out)?;
        // It is never closed, so this cannot fail.
        let _permit = permit.map_err(|error| self.failed(io::Error::other(error)))?;
        let mut stream = match self.shared.idle.take(HttpStream::is_alive) {
            Some(stream) => stream,
            None => self.open(deadline).await?,
        };
        let exchanged = timeout_at(deadline, self.exchange_on(&mut stream, &request)).await;
        let HttpResponse { status, body, reusable } = exchanged.map_err(timed_out)??;
        if reusable {
            self.shared.idle.put(stream);
        }
        Ok(RawResponse { status, body, address: self.address().to_owned() })
    }

    async fn open(&self, deadline: Instant) -> Result<HttpStream, ClientError> {
        let socket = connect(self.address(), self.timeout, deadline).await?;
        #[cfg(feature = "tls")]
        if self.shared.endpoint.tls {
            let (config, name) = self.shared.tls.handshake(self.address())?;
            let handshake = tokio_rustls::TlsConnector::from(config).connect(name, socket);
            let secured = timeout_at(deadline, handshake).await;
            let secured = secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            return match secured {
                Ok(stream) => Ok(HttpStream::Tls(Box::new(stream))),
                Err(error) => Err(ClientError::securing(self.address(), self.timeout, error)),
            };
        }
        Ok(HttpStream::Plain(socket))
    }

    async fn exchange_on(
        &self,
        stream: &mut HttpStream,
        request: &PreparedRequest,
    ) -> Result<HttpResponse, ClientError> {
        let failed = |error| self.failed(error);
        let invalid = |source| ClientError::InvalidResponse { address: self.address().to_owned(), source };
        stream.write_all(&request.bytes).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        let mut inbox = Vec::with_capacity(512);
        loop {
            if stream.read_buf(&mut inbox).await.map_err(failed)? == 0 {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            if let Some(response) = read_response(&inbox, request.response_max).map_err(invalid)? {
                return Ok(response);
            }
        }
    }

    fn failed(&self, error: io::Error) -> ClientError {
        ClientError::exchanging(self.address(), self.timeout, error)
    }
}
