//! HTTP/1.1: answers every request that has arrived, in order.
//!
//! Two gates speak it: `http` for the programs that ask, and `admin` for people and operators. They differ in the paths
//! that they serve, which [`route`] lists.

mod bill_field;
mod browser;
mod console;
mod route;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use tollway::config::{HostNames, HttpSettings};
use tollway_wire::http::{Framer, FramerEvent, Method, MissingPart, ProblemDetails, ResponseWriter};

use self::route::{HttpPeer, HttpRole};
use super::connection::{Missing, Next, Received, Session, now};
use super::tcp::TcpProtocol;
use crate::bounds::Bounds;
use crate::caller::{Authenticator, Caller};
use crate::tap::TapWatcher;
use crate::tokens::{KnownToken, Scope};
use crate::watch::LiveWatcher;
use crate::worker::Worker;

/// Speaks HTTP/1.1.
pub(super) struct Http {
    role: HttpRole,
    settings: Arc<HttpSettings>,
    allow_inline: bool,
    has_tls: bool,
    auth: Authenticator,
}

impl Http {
    /// Creates the gate `http`, which also serves the paths for operators if `serves_operators`.
    pub(super) fn new(
        address: SocketAddr,
        settings: &HttpSettings,
        serves_operators: bool,
        auth: Authenticator,
    ) -> Self {
        let allow_inline = settings.inline.is_allowed_at(address);
        let role = HttpRole::Http { serves_operators };
        Self { role, settings: Arc::new(settings.clone()), allow_inline, has_tls: false, auth }
    }

    /// Creates the gate `admin`.
    pub(super) fn admin(hosts: &HostNames, auth: Authenticator) -> Self {
        let settings = HttpSettings { hosts: hosts.clone(), ..HttpSettings::DEFAULT };
        // Numbers that come with a refund or a reset name a bucket; they let nobody pass and fill no store.
        Self { role: HttpRole::Admin, settings: Arc::new(settings), allow_inline: true, has_tls: false, auth }
    }

    /// Sets whether the gate speaks inside of TLS. The pages of its own site then begin with `https`.
    pub(super) fn with_tls(self, has_tls: bool) -> Self {
        Self { has_tls, ..self }
    }
}

/// The state that the HTTP connections of one worker share.
pub(super) struct HttpShared {
    worker: Arc<Worker>,
    role: HttpRole,
    settings: Arc<HttpSettings>,
    allow_inline: bool,
    has_tls: bool,
    auth: Authenticator,
}

impl TcpProtocol for Http {
    type Shared = HttpShared;
    type Session = HttpSession;

    fn shared(&self, worker: &Arc<Worker>) -> HttpShared {
        let settings = Arc::clone(&self.settings);
        let Self { role, allow_inline, has_tls, .. } = *self;
        let (worker, auth) = (Arc::clone(worker), self.auth.clone());
        HttpShared { worker, role, settings, allow_inline, has_tls, auth }
    }

    fn session(shared: &Arc<HttpShared>, peer: IpAddr, is_reserved: bool) -> HttpSession {
        let bounds = shared.worker.bounds();
        let framer = Framer::new(bounds.head, bounds.body);
        let (shared, certificate, token, watching) = (Arc::clone(shared), None, None, None);
        HttpSession { shared, framer, peer, certificate, token, is_reserved, watching }
    }
}

/// Answers the requests of one connection.
pub(super) struct HttpSession {
    shared: Arc<HttpShared>,
    framer: Framer,
    /// The address that the connection came from.
    peer: IpAddr,
    /// The name that the certificate of the client gives it.
    certificate: Option<Arc<str>>,
    /// The token that the last request had.
    token: Option<Arc<KnownToken>>,
    /// True if the gate was full: only health and metrics are answered, and then the connection is closed.
    is_reserved: bool,
    /// Set once the client watches the server. Nothing that it sends counts any more.
    watching: Option<Watcher>,
}

/// A client whose answer does not end.
pub(super) enum Watcher {
    /// It gets a snapshot each second.
    Live(LiveWatcher),
    /// It gets the decisions.
    Tap(TapWatcher),
}

impl Watcher {
    /// Returns the scope that a token needs for it.
    const fn scope(&self) -> Scope {
        match self {
            Self::Live(_) => Scope::Read,
            Self::Tap(_) => Scope::Admin,
        }
    }

    fn poll_take(&mut self, context: &mut Context<'_>, output: &mut Vec<u8>) -> Poll<()> {
        match self {
            Self::Live(watcher) => watcher.poll_take(context, output),
            Self::Tap(watcher) => watcher.poll_take(context, output),
        }
    }
}

/// The buffers that an answer is written with.
#[derive(Default)]
pub(super) struct HttpScratch {
    body: Vec<u8>,
    date: DateHeader,
}

impl Session for HttpSession {
    type Scratch = HttpScratch;

    fn set_certificate(&mut self, name: Arc<str>) {
        self.certificate = Some(name);
    }

    async fn receive(
        &mut self,
        arrived: &[u8],
        output: &mut Vec<u8>,
        scratch: &mut HttpScratch,
        draining: bool,
    ) -> Received {
        if self.watching.is_some() {
            let next = if draining { Next::Close } else { Next::Read(Missing::Nothing) };
            return Received { taken: arrived.len(), next, at: now() };
        }
        let Self { shared, framer, peer, certificate, token, is_reserved, watching } = self;
        let HttpShared { worker, role, settings, allow_inline, has_tls, auth } = &**shared;
        let worker: &Worker = worker;
        let policy = worker.service.policy();
        let mut at = now();
        scratch.date.refresh(at);
        let HttpScratch { body, date } = scratch;
        let mut taken = 0;
        let next = loop {
            if output.len() > worker.bounds().outbox {
                break Next::Again;
            }
            match framer.next(&arrived[taken..]) {
                Ok(FramerEvent::Request(request)) => {
                    let close = request.close || draining || *is_reserved;
                    let head_only = request.method == Method::Head;
                    let response =
                        ResponseWriter { outbox: output, scratch: body, date: date.text(), close, head_only };
                    let decided = if *is_reserved && !route::is_answered_when_full(request.path) {
                        let problem = ProblemDetails::too_many_connections();
                        worker.metrics.responded(*role == HttpRole::Admin, response.problem(&problem));
                        false
                    } else {
                        let peer = HttpPeer {
                            address: *peer,
                            certificate: certificate.as_deref(),
                            role: *role,
                            settings,
                            allow_inline: *allow_inline,
                            has_tls: *has_tls,
                            auth,
                            caller: Caller::anyone(role.name()),
                        };
                        route::answer(&request, peer, token, worker, &policy, response, watching).await
                    };
                    taken += request.len;
                    let answered = now();
                    if decided {
                        worker.metrics.latency.record(answered - at);
                    }
                    at = answered;
                    if watching.is_some() {
                        // What was pipelined behind it gets no answer: this one does not end.
                        taken = arrived.len();
                        break Next::Read(Missing::Nothing);
                    }
                    if close {
                        // A client that is told to come back later may have sent more.
                        break if *is_reserved { Next::Refuse } else { Next::Close };
                    }
                }
                Ok(FramerEvent::Continue) => output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
                Ok(FramerEvent::Incomplete(part)) => break Next::Read(missing(part)),
                Err(error) => {
                    self.refuse(&ProblemDetails::from(error), output, scratch);
                    break Next::Refuse;
                }
            }
        };
        Received { taken, next, at }
    }

    /// A watcher need not send anything. If it is gone, sending it the next snapshot fails.
    fn read_timeout(&self, missing: Missing, bounds: &Bounds) -> Option<Duration> {
        self.watching.is_none().then(|| missing.time(bounds))
    }

    fn poll_push(&mut self, context: &mut Context<'_>, output: &mut Vec<u8>) -> Poll<()> {
        self.watching.as_mut().map_or(Poll::Pending, |watcher| watcher.poll_take(context, output))
    }

    /// A token that is removed, or loses its scope, does not watch any longer.
    fn is_over(&mut self) -> bool {
        let Some(watcher) = &self.watching else { return false };
        !route::may_watch(&self.shared.auth, &mut self.token, watcher.scope())
    }

    /// A full gate does not close those who watch: they are few, and want to see why it is full.
    fn is_idle(&self) -> bool {
        self.watching.is_none()
    }

    fn time_out(&mut self, missing: Missing, output: &mut Vec<u8>, scratch: &mut HttpScratch) {
        let part = match missing {
            Missing::Head => "rest of the headers",
            Missing::Body => "rest of the body",
            Missing::Nothing | Missing::Frame => return,
        };
        scratch.date.refresh(now());
        self.refuse(&ProblemDetails::request_timeout(part), output, scratch);
    }
}

impl HttpSession {
    fn refuse(&self, problem: &ProblemDetails, output: &mut Vec<u8>, scratch: &mut HttpScratch) {
        let HttpScratch { body, date } = scratch;
        let response = ResponseWriter {
            outbox: output,
            scratch: body,
            date: date.text(),
            close: true,
            head_only: false,
        };
        let HttpShared { worker, role, .. } = &*self.shared;
        worker.metrics.responded(*role == HttpRole::Admin, response.problem(problem));
    }
}

const fn missing(part: MissingPart) -> Missing {
    match part {
        MissingPart::Start => Missing::Nothing,
        MissingPart::Head => Missing::Head,
        MissingPart::Body => Missing::Body,
    }
}

/// Formats the `Date` header once a second.
#[derive(Default)]
struct DateHeader {
    text: String,
    until: Option<Instant>,
}

impl DateHeader {
    fn refresh(&mut self, now: Instant) {
        if self.until.is_none_or(|until| now >= until) {
            self.text = httpdate::fmt_http_date(SystemTime::now());
            self.until = Some(now + Duration::from_secs(1));
        }
    }

    fn text(&self) -> &str {
        &self.text
    }
}
