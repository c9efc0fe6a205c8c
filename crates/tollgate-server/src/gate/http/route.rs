//! Which path is for what.

use tollgate_wire::http::{Command, Gate, Method, Problem, Request, Response, Status, Verb};

use crate::gate::Worker;
use crate::metrics;
use crate::service::{CallError, InForce, Reply};

/// The interface, as a document.
const OPENAPI: &str = include_str!("openapi.json");

/// Answers one request, and says whether something was decided, given back or reset.
pub(super) fn answer(
    request: &Request<'_>,
    worker: &Worker,
    in_force: &InForce,
    response: Response<'_>,
) -> bool {
    let (status, decided) = match request.path {
        "/v1/spend" => command(Verb::Spend, request, worker, in_force, response),
        "/v1/check" => command(Verb::Check, request, worker, in_force, response),
        "/v1/refund" => command(Verb::Refund, request, worker, in_force, response),
        "/v1/reset" => command(Verb::Reset, request, worker, in_force, response),
        "/v1/gate" => gate(request, worker, in_force, response),
        path => (document(path, request.method, worker, response), false),
    };
    worker.metrics.responded(status);
    decided
}

fn command(
    verb: Verb,
    request: &Request<'_>,
    worker: &Worker,
    in_force: &InForce,
    response: Response<'_>,
) -> (Status, bool) {
    if request.method != Method::Post {
        return (response.problem(&Problem::method_not_allowed("POST")), false);
    }
    let command = match Command::from_json(verb, request.body) {
        Ok(command) => command,
        Err(malformed) => return (response.problem(&malformed.into()), false),
    };
    let status = match worker.service.call(in_force, &command) {
        Ok(Reply::Decision(charges, decision)) => response.decision(&charges, &decision),
        Ok(Reply::Refund(charges, refund)) => response.refund(&charges, &refund),
        Ok(Reply::Reset) => response.reset(),
        Err(error) => return (response.problem(&problem(error)), false),
    };
    (status, true)
}

fn gate(
    request: &Request<'_>,
    worker: &Worker,
    in_force: &InForce,
    response: Response<'_>,
) -> (Status, bool) {
    if !reads(request.method) {
        return (response.problem(&Problem::method_not_allowed("GET, HEAD")), false);
    }
    let gate = match Gate::from_query(request.query) {
        Ok(gate) => gate,
        Err(malformed) => return (response.problem(&malformed.into()), false),
    };
    match worker.service.spend(in_force, &gate.command) {
        Ok((charges, decision)) => (response.gate(&charges, &decision, gate.deny_status.status()), true),
        Err(error) => (response.problem(&problem(error)), false),
    }
}

fn document(path: &str, method: Method, worker: &Worker, response: Response<'_>) -> Status {
    if !matches!(path, "/healthz" | "/readyz" | "/metrics" | "/openapi.json") {
        return response.problem(&Problem::not_found(path));
    }
    if !reads(method) {
        return response.problem(&Problem::method_not_allowed("GET, HEAD"));
    }
    match path {
        "/metrics" => {
            let page = metrics::encode(&worker.shared.metrics, &worker.shared.limiter, worker.gauges());
            response.document(Status::Ok, "text/plain; version=0.0.4; charset=utf-8", page.as_bytes())
        }
        "/openapi.json" => response.document(Status::Ok, "application/json", OPENAPI.as_bytes()),
        "/readyz" if worker.drain.has_started() => {
            response.problem(&Problem::not_ready("draining: no new connections are accepted"))
        }
        _ => response.document(Status::Ok, "text/plain; charset=utf-8", b"ok\n"),
    }
}

const fn reads(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

fn problem(error: CallError) -> Problem {
    match error {
        CallError::Charge(error) => error.into(),
        CallError::Bill(error) => error.into(),
    }
}
