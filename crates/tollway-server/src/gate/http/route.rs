//! Maps paths to what they do.

use std::net::IpAddr;
use std::sync::Arc;

use tollway::config::{Gates, HttpSettings, ShowIds};
use tollway::engine::{Engine, VerbAnswer};
use tollway::export::{ImportError, ImportSettings};
use tollway::limiter::LimiterError;
use tollway::store::NodeState;
use tollway_core::rule::NamedRule;
use tollway_core::{Decider, Domain, ErrorChain, Limit, Policy, Verb};
use tollway_wire::http::{
    BucketsPage, DenyStatus, ExportQuery, GateQuery, HttpCommand, HttpRequest, HttpRuleRequest, HttpStatus,
    ImportCounts, ImportQuery, InspectQuery, KeysQuery, LiveQuery, Method, ProblemDetails, ProxiedRequest,
    ResponseWriter, ThrottlecrabRequest, TopQuery,
};
use tollway_wire::rls;

use super::bill_field::BillParts;
use super::{Watcher, browser, console};
use crate::caller::{AccessDenied, Authenticator, Caller};
use crate::metrics;
use crate::service::{CountedPolicy, NO_STORE, PageError, RlsError, ServiceError};
use crate::tokens::{KnownToken, Scope};
use crate::watch::KEYS;
use crate::worker::{Shared, Worker};

/// The content type of answers that people read.
const TEXT: &str = "text/plain; charset=utf-8";

/// A document that is a part of the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

/// The OpenAPI document, which describes the interface.
static OPENAPI: Document = Document { content_type: "application/json", text: include_str!("openapi.json") };

/// The gate at which a request has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpRole {
    /// The gate `http`, for the programs that ask.
    Http {
        /// True if it serves the paths for operators, because there is no admin gate and it listens on loopback.
        serves_operators: bool,
    },
    /// The gate `admin`, for people and operators.
    Admin,
}

impl HttpRole {
    /// Returns the name of the gate.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::Admin => "admin",
        }
    }
}

/// The gates that serve a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedBy {
    Http,
    /// The path is for operators.
    Admin,
    Both,
}

impl ServedBy {
    const fn includes(self, role: HttpRole) -> bool {
        match (self, role) {
            (Self::Both, _) | (Self::Http, HttpRole::Http { .. }) | (Self::Admin, HttpRole::Admin) => true,
            (Self::Admin, HttpRole::Http { serves_operators }) => serves_operators,
            (Self::Http, HttpRole::Admin) => false,
        }
    }
}

/// Names everything that a path can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Command(Verb),
    Gate,
    Throttle,
    Rule,
    /// A request to Envoy's rate limit service, as JSON.
    Rls,
    Explain,
    Inspect,
    Keys,
    /// All buckets of the memory store, a page at a time.
    Buckets,
    Top,
    Live,
    Health,
    Ready,
    Metrics,
    Document(&'static Document),
    /// A part of the console.
    Console(&'static Document),
}

/// The path of a rule, as the table has it.
const RULE: &str = "/v1/rules/{name}";
/// The part of a path that stands before the name of a rule.
const RULES: &str = "/v1/rules/";

/// A path, and who may ask for it.
struct ServedPath {
    path: &'static str,
    route: Route,
    by: ServedBy,
    /// The scope that a token must have; `None` if no token is needed, because the answer tells nothing about clients.
    needs: Option<Scope>,
}

const fn served(path: &'static str, route: Route, by: ServedBy, needs: Option<Scope>) -> ServedPath {
    ServedPath { path, route, by, needs }
}

/// All paths, the gates that serve them, and the scopes that they need. The one that nearly every request has is first.
static ROUTES: [ServedPath; 22] = [
    served("/v1/spend", Route::Command(Verb::Spend), ServedBy::Http, Some(Scope::Decide)),
    served("/v1/check", Route::Command(Verb::Check), ServedBy::Http, Some(Scope::Decide)),
    served("/v1/gate", Route::Gate, ServedBy::Http, Some(Scope::Decide)),
    served("/v1/refund", Route::Command(Verb::Refund), ServedBy::Both, Some(Scope::Refund)),
    served("/v1/reset", Route::Command(Verb::Reset), ServedBy::Admin, Some(Scope::Admin)),
    served(RULE, Route::Rule, ServedBy::Http, Some(Scope::Decide)),
    served("/json", Route::Rls, ServedBy::Http, Some(Scope::Decide)),
    served("/v1/explain", Route::Explain, ServedBy::Admin, Some(Scope::Read)),
    served("/v1/inspect", Route::Inspect, ServedBy::Admin, Some(Scope::Read)),
    served("/v1/keys", Route::Keys, ServedBy::Admin, Some(Scope::Read)),
    served("/v1/buckets", Route::Buckets, ServedBy::Admin, Some(Scope::Admin)),
    served("/v1/top", Route::Top, ServedBy::Admin, Some(Scope::Read)),
    served("/v1/live", Route::Live, ServedBy::Admin, Some(Scope::Read)),
    served("/throttle", Route::Throttle, ServedBy::Http, Some(Scope::Decide)),
    served("/metrics", Route::Metrics, ServedBy::Admin, Some(Scope::Read)),
    served("/healthz", Route::Health, ServedBy::Both, None),
    served("/readyz", Route::Ready, ServedBy::Both, None),
    served("/openapi.json", Route::Document(&OPENAPI), ServedBy::Both, Some(Scope::Read)),
    served("/", Route::Console(&console::PAGE), ServedBy::Admin, None),
    served("/console.css", Route::Console(&console::STYLE), ServedBy::Admin, None),
    served("/console.js", Route::Console(&console::SCRIPT), ServedBy::Admin, None),
    served("/icon.svg", Route::Console(&console::ICON), ServedBy::Admin, None),
];

/// Returns what a path stands for, and who may ask for it.
fn find(path: &str) -> Option<&'static ServedPath> {
    let listed = |path: &str| ROUTES.iter().find(|served| served.path == path);
    let below = || rule_name(path).map(|_| RULE).or_else(|| below_gate(path).map(|_| "/v1/gate"));
    listed(path).or_else(|| below().and_then(listed))
}

impl ServedPath {
    /// Returns the client that sent a request, or the problem of one that may not ask.
    fn caller<'k>(
        &self,
        request: &HttpRequest<'_>,
        peer: &HttpPeer<'k>,
        token: &'k mut Option<Arc<KnownToken>>,
    ) -> Result<Caller<'k>, AccessDenied> {
        let caller = peer.auth.caller(request.sender.bearer_token(), peer.address, token);
        let Some(scope) = self.needs else {
            return Ok(caller.unwrap_or(Caller::nobody(peer.role.name())));
        };
        let caller = caller?.with_certificate(peer.certificate);
        caller.check_scope(scope)?;
        if matches!(self.route, Route::Live | Route::Metrics | Route::Buckets) {
            caller.check_all_limits()?;
        }
        Ok(caller)
    }
}

/// Returns whether a client that watches the server may go on. Its token may have changed since it began.
pub(super) fn may_watch(auth: &Authenticator, token: &mut Option<Arc<KnownToken>>, scope: Scope) -> bool {
    let Some(tokens) = auth.tokens() else { return true };
    tokens.renew(token);
    let caller = auth.known_caller(None, token.as_ref().map(|token| token.grant()));
    caller.check_scope(scope).and_then(|()| caller.check_all_limits()).is_ok()
}

impl Route {
    fn takes(self, method: Method) -> bool {
        match self {
            Self::Gate => true,
            Self::Buckets => matches!(method, Method::Get | Method::Head | Method::Post),
            Self::Command(_) | Self::Rule | Self::Rls | Self::Explain | Self::Throttle => {
                method == Method::Post
            }
            _ => matches!(method, Method::Get | Method::Head),
        }
    }

    /// Returns the problem of a request that a web page may have sent without permission.
    fn check_sender(
        self,
        request: &HttpRequest<'_>,
        peer: &HttpPeer<'_>,
        served_by: ServedBy,
    ) -> Result<(), ProblemDetails> {
        match self {
            // It needs to know whether a proxy asks, which is found out with the rest of what the proxy says.
            Self::Gate => Ok(()),
            // Other sites may link to the page: it has no figures, which it asks for itself.
            Self::Console(_) => browser::check_host(request.sender.host, peer),
            _ => browser::check(request, peer, served_by == ServedBy::Admin),
        }
    }

    /// Returns the status of the answer, and whether something was decided, refunded or reset.
    async fn perform(
        self,
        request: &HttpRequest<'_>,
        peer: HttpPeer<'_>,
        worker: &Worker,
        policy: &CountedPolicy,
        response: ResponseWriter<'_>,
        watching: &mut Option<Watcher>,
    ) -> (HttpStatus, bool) {
        let status = match self {
            Self::Command(verb) => return command(verb, request, peer, worker, policy, response).await,
            Self::Gate => return gate(request, peer, worker, policy, response).await,
            Self::Throttle => return throttle(request, peer, worker, policy, response).await,
            Self::Rule => return rule(request, peer, worker, policy, response).await,
            Self::Rls => return rls(request, peer, worker, policy, response).await,
            Self::Explain => explain(request, peer, worker, policy, response).await,
            Self::Inspect => inspect(request, peer, worker, response).await,
            Self::Keys => keys(request, peer, worker, response).await,
            Self::Buckets if request.method == Method::Post => import(request, &peer, worker, response),
            Self::Buckets => export(request, &peer, worker, response),
            Self::Top => top(request, peer, worker, policy, response).await,
            Self::Live => live(request, &peer, worker, response, watching),
            Self::Metrics => metrics(worker, response),
            Self::Document(Document { content_type, text }) => {
                response.document(HttpStatus::Ok, content_type, text.as_bytes())
            }
            Self::Console(Document { content_type, text }) => {
                response.page(content_type, console::CONTENT_POLICY, text.as_bytes())
            }
            Self::Ready if worker.drain.has_started() => {
                response.problem(&ProblemDetails::not_ready("draining: no new connections are accepted"))
            }
            Self::Health if !worker.shared.health.is_good() => {
                let detail =
                    "a part of the server panicked or cannot receive, and is tried again; see the log";
                response.problem(&ProblemDetails::not_ready(detail))
            }
            Self::Health => response.document(HttpStatus::Ok, TEXT, b"ok\n"),
            Self::Ready => {
                let text = readiness(&worker.shared.limiter, peer.may_see_addresses(request));
                response.document(HttpStatus::Ok, TEXT, text.as_bytes())
            }
        };
        (status, false)
    }

    const fn methods(self) -> &'static str {
        match self {
            Self::Command(_) | Self::Rule | Self::Rls | Self::Explain | Self::Throttle => "POST",
            Self::Buckets => "GET, HEAD, POST",
            _ => "GET, HEAD",
        }
    }
}

/// Returns the name in the path of a rule.
fn rule_name(path: &str) -> Option<&str> {
    path.strip_prefix(RULES).filter(|name| !name.is_empty())
}

/// Returns the path below that of the gate. Envoy appends the path of the original request.
fn below_gate(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/gate").filter(|below| below.starts_with('/'))
}

/// The peer that sent a request, and what it may do.
#[derive(Clone, Copy)]
pub(super) struct HttpPeer<'a> {
    pub(super) address: IpAddr,
    /// The name that its certificate gives it.
    pub(super) certificate: Option<&'a str>,
    pub(super) role: HttpRole,
    pub(super) settings: &'a HttpSettings,
    /// True if the gate takes the numbers of limits from its clients.
    pub(super) allow_inline: bool,
    /// True if the connection is inside of TLS.
    pub(super) has_tls: bool,
    pub(super) auth: &'a Authenticator,
    /// The client, once it is known.
    pub(super) caller: Caller<'a>,
}

impl HttpPeer<'_> {
    /// Returns whether the client may know where the nodes of the store are. A page whose own name points to this
    /// machine (DNS rebinding) comes from loopback as well, so without tokens the name counts, too.
    fn may_see_addresses(&self, request: &HttpRequest<'_>) -> bool {
        let is_known = self.auth.tokens().is_some() || browser::check_host(request.sender.host, self).is_ok();
        is_known && self.auth.shows_addresses_to(&self.caller)
    }
}

/// Returns whether a path is answered even if the gate is full, so that operators can find out why.
pub(super) fn is_answered_when_full(path: &str) -> bool {
    let is_answered =
        |served: &ServedPath| matches!(served.route, Route::Health | Route::Ready | Route::Metrics);
    find(path).is_some_and(is_answered)
}

/// Answers one request, and returns whether something was decided, refunded or reset. A request to watch the server
/// sets `watching`, and its answer does not end. `token` is the token that the connection sent last.
pub(super) async fn answer(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    token: &mut Option<Arc<KnownToken>>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
    watching: &mut Option<Watcher>,
) -> bool {
    let (status, decided) = match find(request.path) {
        None => (response.problem(&ProblemDetails::not_found(request.path)), false),
        Some(served) if !served.by.includes(peer.role) => {
            (response.problem(&other_gate(request.path, served.by, worker)), false)
        }
        Some(served) if !served.route.takes(request.method) => {
            (response.problem(&ProblemDetails::method_not_allowed(served.route.methods())), false)
        }
        Some(served) => match served.route.check_sender(request, &peer, served.by) {
            Ok(()) => match served.caller(request, &peer, token) {
                Ok(caller) => {
                    let trace = worker.shared.spans.as_ref().and_then(|_| request.sender.trace_parent());
                    let peer = HttpPeer { caller: caller.with_trace(trace), ..peer };
                    served.route.perform(request, peer, worker, policy, response, watching).await
                }
                Err(denied) => (response.problem(&denial_of(&denied, worker)), false),
            },
            Err(problem) => (response.problem(&problem), false),
        },
    };
    worker.metrics.responded(peer.role == HttpRole::Admin, status);
    decided
}

/// Returns the problem of a client that may not do what it asks for, and counts it.
fn denial_of(denied: &AccessDenied, worker: &Worker) -> ProblemDetails {
    worker.service.count_denied(denied);
    match denied {
        AccessDenied::NoToken => ProblemDetails::no_token(),
        AccessDenied::UnknownToken => ProblemDetails::unknown_token(),
        AccessDenied::MissingScope(scope) => ProblemDetails::missing_scope(scope.name()),
        AccessDenied::OtherLimits(name) => ProblemDetails::other_limits(name),
        AccessDenied::AllLimits => ProblemDetails::all_limits(),
    }
}

/// Returns the problem of a path that only the other gate serves.
fn other_gate(path: &str, served_by: ServedBy, worker: &Worker) -> ProblemDetails {
    let (gate, default) =
        if served_by == ServedBy::Admin { ("admin", Gates::ADMIN) } else { ("http", Gates::HTTP) };
    match worker.shared.addresses.of(gate) {
        Some(address) => ProblemDetails::other_gate(path, gate, address),
        None => ProblemDetails::gate_off(path, gate, default),
    }
}

async fn command(
    verb: Verb,
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
) -> (HttpStatus, bool) {
    let command = match HttpCommand::from_json(verb, request.body) {
        Ok(command) => command,
        Err(malformed) => return (response.problem(&malformed.into()), false),
    };
    let rules = command.rules();
    let (charges, has_charge_list) = (command.charges(), command.has_charge_list());
    let parts = BillParts { verb, charges, has_charge_list, rules };
    if !peer.allow_inline && command.charges().iter().any(|charge| charge.inline.is_some()) {
        let problem = ProblemDetails::inline_denied().within(parts.inline_path());
        return (response.problem(&problem), false);
    }
    let status = match worker.service.perform(&peer.caller, policy, verb, command.charges(), rules).await {
        Ok(VerbAnswer::Decision(charges, decision)) => match decision.decider(&charges) {
            Decider::Charge(_) => response.decision(&charges, &decision),
            Decider::Rule(index) => response.rule_decision(&decision.into(), Some(rules[index].rule.text())),
        },
        Ok(VerbAnswer::Refund(charges, refund)) => response.refund(&charges, &refund),
        Ok(VerbAnswer::Reset(_)) => response.reset(),
        Err(error) => {
            let (path, denied_rule) = (parts.path(&error, policy.policy()), parts.denied_rule(&error));
            let mut problem = problem(error, request, &peer, worker).within(path);
            problem.field = denied_rule.or(problem.field);
            return (response.problem(&problem), false);
        }
    };
    (status, true)
}

/// Answers a client of throttlecrab.
async fn throttle(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
) -> (HttpStatus, bool) {
    if !peer.settings.throttlecrab {
        return (response.problem(&ProblemDetails::throttlecrab_off()), false);
    }
    let asked = match ThrottlecrabRequest::from_json(request.body) {
        Ok(asked) => asked,
        Err(malformed) => {
            return (response.throttle_error(HttpStatus::BadRequest, &malformed.detail), false);
        }
    };
    match worker.service.perform(&peer.caller, policy, Verb::Spend, &[asked.charge()], &[]).await {
        Ok(VerbAnswer::Decision(_, decision)) => (response.throttle(&asked, &decision), true),
        Ok(VerbAnswer::Refund(..) | VerbAnswer::Reset(_)) => unreachable!("a spend is decided"),
        Err(error) => {
            let problem = problem(error, request, &peer, worker);
            (response.throttle_error(problem.status, &problem.detail), false)
        }
    }
}

/// Answers a proxy that asks whether it may let a request through.
async fn gate(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
) -> (HttpStatus, bool) {
    if peer.settings.gate_off {
        return (response.problem(&ProblemDetails::proxies_off()), false);
    }
    let gate = match GateQuery::from_query(request.query) {
        Ok(gate) => gate,
        Err(malformed) => return (response.problem(&malformed.into()), false),
    };
    let denied = gate.deny_status.map(DenyStatus::status);
    let original = gate.original_target.or_else(|| below_gate(request.path));
    let proxied = ProxiedRequest::new(request, original, peer.address, &peer.settings.trusted_proxies);
    if let Err(refused) = browser::check_proxy(request, &proxied) {
        return (response.problem(&denial(refused, denied)), false);
    }
    let charges = gate.charges.into_iter().map(|charge| {
        let ids = policy.policy().limit(&charge.limit).map(Limit::ids).unwrap_or_default();
        charge.into_request(&proxied, ids)
    });
    let rules = gate.rules.into_iter().map(|rule| rule.into_request(&proxied));
    let (charges, rules) =
        match (charges.collect::<Result<Vec<_>, _>>(), rules.collect::<Result<Vec<_>, _>>()) {
            (Ok(charges), Ok(rules)) => (charges, rules),
            (Err(malformed), _) | (_, Err(malformed)) => {
                return (response.problem(&denial(malformed.into(), denied)), false);
            }
        };
    match worker.service.perform(&peer.caller, policy, Verb::Spend, &charges, &rules).await {
        Ok(VerbAnswer::Decision(charges, decision)) => match decision.decider(&charges) {
            Decider::Charge(_) => (response.gate(&charges, &decision, denied), true),
            Decider::Rule(_) => (response.gate_rule(&decision.into(), denied), true),
        },
        Ok(VerbAnswer::Refund(..) | VerbAnswer::Reset(_)) => unreachable!("a spend is decided"),
        Err(error) => (response.problem(&denial(problem(error, request, &peer, worker), denied)), false),
    }
}

/// Gives a request that a page has sent, or whose id or selectors are missing or wrong, the status of a denial, if the
/// proxy named one. By any other status, a client would pass that leaves out a header: some proxies take it for a
/// failure of the gate.
fn denial(mut problem: ProblemDetails, denied: Option<HttpStatus>) -> ProblemDetails {
    if matches!(problem.status, HttpStatus::BadRequest | HttpStatus::Unprocessable | HttpStatus::Forbidden) {
        problem.status = denied.unwrap_or(problem.status);
    }
    problem
}

async fn rule(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
) -> (HttpStatus, bool) {
    let name = rule_name(request.path).unwrap_or_default();
    let asked = match HttpRuleRequest::for_rule(name, request.body) {
        Ok(asked) => asked,
        Err(malformed) => return (response.problem(&malformed.into()), false),
    };
    match worker.service.resolve(&peer.caller, policy, &asked).await {
        Ok(ruling) => (response.rule_decision(&ruling, None), true),
        Err(error) => (response.problem(&problem(error, request, &peer, worker)), false),
    }
}

async fn rls(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
) -> (HttpStatus, bool) {
    let asked = match rls::from_json(request.body) {
        Ok(asked) => asked,
        Err(malformed) => return (response.problem(&malformed.into()), false),
    };
    if !peer.allow_inline && asked.descriptors.iter().any(|descriptor| descriptor.limit.is_some()) {
        return (response.problem(&ProblemDetails::inline_denied()), false);
    }
    let mut body = Vec::with_capacity(256);
    let answered = worker.service.should_rate_limit(&peer.caller, policy, &asked, |answer| {
        rls::put_json(&mut body, answer);
        if answer.over_limit { HttpStatus::TooManyRequests } else { HttpStatus::Ok }
    });
    match answered.await {
        Ok(status) => (response.document(status, "application/json", &body), true),
        Err(RlsError::Unavailable) => {
            (response.problem(&ProblemDetails::store_unreachable(&RlsError::Unavailable.to_string())), false)
        }
        Err(RlsError::Request(error)) => (response.problem(&error.into()), false),
        Err(RlsError::Denied(denied)) => (response.problem(&denial_of(&denied, worker)), false),
        Err(RlsError::Charge(error)) => {
            (response.problem(&problem(error.into(), request, &peer, worker)), false)
        }
    }
}

async fn explain(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
) -> HttpStatus {
    let asked = match HttpRuleRequest::from_json(request.body) {
        Ok(asked) => asked,
        Err(malformed) => return response.problem(&malformed.into()),
    };
    match worker.service.explain(&peer.caller, policy, &asked).await {
        Ok(explained) => response.rule_explanation(&explained),
        Err(error) => response.problem(&problem(error, request, &peer, worker)),
    }
}

async fn inspect(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    response: ResponseWriter<'_>,
) -> HttpStatus {
    let asked = match InspectQuery::from_query(request.query) {
        Ok(asked) => asked,
        Err(malformed) => return response.problem(&malformed.into()),
    };
    match worker.service.inspect(&peer.caller, &asked).await {
        Ok(inspected) => response.bucket_report(&inspected),
        Err(error) => response.problem(&problem(error, request, &peer, worker)),
    }
}

async fn keys(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    response: ResponseWriter<'_>,
) -> HttpStatus {
    let asked = match KeysQuery::from_query(request.query) {
        Ok(asked) => asked,
        Err(malformed) => return response.problem(&malformed.into()),
    };
    match worker.service.keys(&peer.caller, &asked).await {
        Ok(Some(page)) => response.keys_page(&page),
        Ok(None) => response.problem(&ProblemDetails::no_ids()),
        Err(error) => response.problem(&problem(error, request, &peer, worker)),
    }
}

/// Answers with a page of all buckets. Copying and encoding one takes about a millisecond.
fn export(
    request: &HttpRequest<'_>,
    peer: &HttpPeer<'_>,
    worker: &Worker,
    response: ResponseWriter<'_>,
) -> HttpStatus {
    let asked = match ExportQuery::from_query(request.query) {
        Ok(asked) => asked,
        Err(malformed) => return response.problem(&malformed.into()),
    };
    match worker.service.export(&peer.caller, asked.from) {
        Ok(page) => {
            let mut body = Vec::new();
            BucketsPage(page).put_json(&mut body);
            response.document(HttpStatus::Ok, "application/json", &body)
        }
        Err(error) => response.problem(&import_problem(&error)),
    }
}

/// Takes a page of buckets.
fn import(
    request: &HttpRequest<'_>,
    peer: &HttpPeer<'_>,
    worker: &Worker,
    response: ResponseWriter<'_>,
) -> HttpStatus {
    let asked = ImportQuery::from_query(request.query);
    let (ImportQuery { dry_run, any_clock }, BucketsPage(page)) =
        match asked.and_then(|asked| Ok((asked, BucketsPage::from_request(request.body)?))) {
            Ok(asked) => asked,
            Err(malformed) => return response.problem(&malformed.into()),
        };
    let settings = ImportSettings::default().with_dry_run(dry_run).with_any_clock(any_clock);
    match worker.service.import(&peer.caller, &page, settings) {
        Ok(report) => {
            let mut body = Vec::new();
            ImportCounts::new(report.numbers()).put_json(&mut body);
            response.document(HttpStatus::Ok, "application/json", &body)
        }
        Err(error) => response.problem(&import_problem(&error)),
    }
}

fn import_problem(error: &PageError) -> ProblemDetails {
    match error {
        PageError::Import(ImportError::Shared) => ProblemDetails::shared_buckets(),
        error => ProblemDetails::import_refused(&ErrorChain(error).to_string()),
    }
}

async fn top(
    request: &HttpRequest<'_>,
    peer: HttpPeer<'_>,
    worker: &Worker,
    policy: &CountedPolicy,
    response: ResponseWriter<'_>,
) -> HttpStatus {
    let asked = match TopQuery::from_query(request.query) {
        Ok(asked) => asked,
        Err(malformed) => return response.problem(&malformed.into()),
    };
    let checked = match asked.limit.as_deref() {
        Some(name) => peer.caller.check_limit(name),
        None => peer.caller.check_all_limits(),
    };
    if let Err(denied) = checked {
        return response.problem(&denial_of(&denied, worker));
    }
    let Shared { watch, limiter, .. } = &*worker.shared;
    if !watch.settings().is_on {
        return response.problem(&ProblemDetails::watch_off());
    }
    let mut report = watch.top(asked.by, asked.limit.as_deref(), asked.n, limiter).await;
    // Ids may still be listed under a name that a reload has removed.
    if let Some(name) =
        asked.limit.as_deref().filter(|name| report.top.is_empty() && !is_counted(name, policy))
    {
        return response.problem(&unknown_name(name, policy.policy(), &peer.caller));
    }
    if !peer.caller.may_use_all() {
        // They are of all limits.
        (report.total, report.exact) = (None, None);
    }
    response.top_report(&report)
}

/// Returns whether ids can be counted under a name: that of a limit, a rule or a domain, or one that needs none of them
/// in the configuration.
fn is_counted(name: &str, policy: &CountedPolicy) -> bool {
    let policy = policy.policy();
    let is_configured = policy.limit(name).is_some() || policy.rule(name).is_some();
    let is_inline = policy.inline_limit().limit().name() == name
        || policy.descriptors().overrides().is_some_and(|overrides| overrides.limit().name() == name);
    is_configured || is_inline || policy.domain(name.as_bytes()).is_some() || name == KEYS
}

/// Returns the problem of a name that no limit, rule or domain has, without names that the client may not use.
#[cold]
fn unknown_name(name: &str, policy: &Policy, caller: &Caller<'_>) -> ProblemDetails {
    let limits = policy.limits().iter().map(Limit::name);
    let rules = policy.rules().iter().map(NamedRule::name);
    let names = limits.chain(rules).chain(policy.domains().iter().map(Domain::name));
    let existing: Vec<_> =
        names.filter(|name| caller.may_use_all() || caller.check_limit(name).is_ok()).collect();
    ProblemDetails::unknown_name(name, &existing)
}

/// Starts an answer that goes on until one side ends the connection.
fn live(
    request: &HttpRequest<'_>,
    peer: &HttpPeer<'_>,
    worker: &Worker,
    response: ResponseWriter<'_>,
    watching: &mut Option<Watcher>,
) -> HttpStatus {
    let asked = match LiveQuery::from_query(request.query) {
        Ok(asked) => asked,
        Err(malformed) => return response.problem(&malformed.into()),
    };
    // While somebody records, requests are decided one after another.
    if let (LiveQuery::Record(_), Err(denied)) = (asked, peer.caller.check_scope(Scope::Admin)) {
        return response.problem(&denial_of(&denied, worker));
    }
    if worker.drain.has_started() {
        return response.problem(&ProblemDetails::not_ready("draining: nobody can start to watch"));
    }
    let Shared { feed, tap, watch, .. } = &*worker.shared;
    let show_ids = watch.settings().show_ids;
    if show_ids == ShowIds::Off && matches!(asked, LiveQuery::Record(_)) {
        return response.problem(&ProblemDetails::ids_not_shown());
    }
    let (has_place, too_many) = match asked {
        LiveQuery::Figures => (feed.has_place(), ProblemDetails::too_many_watchers(feed.max())),
        LiveQuery::Record(_) => (tap.has_place(), ProblemDetails::too_many_recorders(tap.max())),
    };
    if response.head_only {
        // It takes no place, and has the status that a GET would have.
        return if has_place { response.events(b"") } else { response.problem(&too_many) };
    }
    let mut first = Vec::new();
    let watcher = match asked {
        LiveQuery::Figures => feed.join(&mut first).map(Watcher::Live),
        LiveQuery::Record(query) => tap.join(&query, show_ids, &mut first).map(Watcher::Tap),
    };
    match watcher {
        Some(watcher) => {
            *watching = Some(watcher);
            response.events(&first)
        }
        None => response.problem(&too_many),
    }
}

fn metrics(worker: &Worker, response: ResponseWriter<'_>) -> HttpStatus {
    let Shared { metrics, limiter, gates, auditor, .. } = &*worker.shared;
    let page = metrics::encode(metrics, limiter, gates, &auditor.log);
    response.document(HttpStatus::Ok, "text/plain; version=0.0.4; charset=utf-8", page.as_bytes())
}

/// Returns the answer of a server that is ready, with the state of the store. The server is ready even if the store is
/// unreachable: a proxy that took out all servers that share a store would take the site down. Everybody may ask, so
/// the addresses of the nodes, and reasons, which may have one, are only for those who may see them.
fn readiness(limiter: &Engine, with_addresses: bool) -> String {
    let mut text = "ok\n".to_owned();
    let nodes = limiter.health().into_iter().flat_map(|health| health.nodes);
    for (number, node) in (1..).zip(nodes) {
        let state = match node.state {
            NodeState::Up => "up".to_owned(),
            NodeState::Unreachable { since, reason } => {
                let reason = if with_addresses { format!(": {reason}") } else { String::new() };
                format!("unreachable for {}s{reason}", since.elapsed().as_secs())
            }
            _ => "connecting".to_owned(),
        };
        let name = if with_addresses { node.address } else { format!("node-{number}") };
        text += &format!("store {name} {state}\n");
    }
    if let Some(stats) = limiter.journal_stats() {
        let state = stats.failing_since.map_or_else(
            || "up".to_owned(),
            |since| {
                let secs = limiter.clock().now().since(since).get() / 1_000_000_000;
                let reason = stats.last_error.filter(|_| with_addresses);
                let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                format!("keeps nothing for {secs}s{reason}")
            },
        );
        text += &format!("journal {state}\n");
    }
    text
}

fn problem(
    error: ServiceError,
    request: &HttpRequest<'_>,
    peer: &HttpPeer<'_>,
    worker: &Worker,
) -> ProblemDetails {
    match error {
        ServiceError::Denied(denied) => denial_of(&denied, worker),
        ServiceError::Limiter(LimiterError::Charge(error)) => peer.caller.hide_other_limits(error).into(),
        ServiceError::Limiter(LimiterError::Bill(error)) => error.into(),
        ServiceError::Limiter(LimiterError::Rule(error)) => peer.caller.hide_other_rules(error).into(),
        error if peer.may_see_addresses(request) => {
            ProblemDetails::store_unreachable(&ErrorChain(&error).to_string())
        }
        _ => ProblemDetails::store_unreachable(NO_STORE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the paths that the document describes: all but those of the console, which are for browsers.
    fn described() -> impl Iterator<Item = &'static ServedPath> {
        ROUTES.iter().filter(|served| !matches!(served.route, Route::Console(_)))
    }

    #[test]
    fn the_document_has_every_path_and_method() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI.text).unwrap();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), described().count());
        for ServedPath { path, route, .. } in described() {
            let mut methods: Vec<_> =
                paths[*path].as_object().unwrap().keys().map(|key| key.to_uppercase()).collect();
            methods.sort_unstable();
            assert_eq!(methods.join(", "), route.methods(), "{path}");
        }
    }

    #[test]
    fn the_document_has_the_gates_of_every_path() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI.text).unwrap();
        for ServedPath { path, by, .. } in described() {
            let expected = match by {
                ServedBy::Http => vec![Gates::HTTP],
                ServedBy::Admin => vec![Gates::ADMIN],
                ServedBy::Both => vec![Gates::HTTP, Gates::ADMIN],
            };
            let expected: Vec<_> = expected.iter().map(|address| format!("http://{address}")).collect();
            for operation in document["paths"][*path].as_object().unwrap().values() {
                let servers = operation["servers"].as_array().unwrap();
                let urls: Vec<_> = servers.iter().map(|server| server["url"].as_str().unwrap()).collect();
                assert_eq!(urls, expected, "{path}");
            }
        }
    }

    #[test]
    fn the_document_has_the_scope_of_every_path() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI.text).unwrap();
        for ServedPath { path, needs, .. } in described() {
            for operation in document["paths"][*path].as_object().unwrap().values() {
                let expected = match needs {
                    Some(scope) => serde_json::json!([{}, { "token": [scope.name()] }]),
                    None => serde_json::json!([]),
                };
                assert_eq!(operation["security"], expected, "{path}");
            }
        }
    }

    #[test]
    fn the_document_is_of_this_version() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI.text).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
