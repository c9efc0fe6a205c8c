//! Refuses what web pages of other sites send.
//!
//! A browser that runs on the machine of a gate, or in its network, sends requests for any page that it has open. The
//! page need not be able to read the answer: a spend or a reset has happened by then. Three rules stand against that:
//!
//! - A page of another site is refused, by the headers in which browsers name it.
//! - A gate is asked by an address, by `localhost`, or by a name that is configured. A page whose own name points here
//!   (DNS rebinding) is not of another site, but its name shows.
//! - A body is JSON by its type. Browsers ask before they send that type for another site, and get no permission.
//!
//! Programs send none of these headers, except the type of their body. Proxies pass on those of their clients, so
//! `/v1/gate` has a rule of its own: [`check_proxy`].

use tollway_wire::http::{HostHeader, HttpRequest, Method, ProblemDetails, ProxiedRequest};

use super::route::{HttpPeer, HttpRole};

/// Returns the problem of a request that a page may have sent without permission. `for_operators` says that its path is
/// one of those that only operators need.
pub(super) fn check(
    request: &HttpRequest<'_>,
    peer: &HttpPeer<'_>,
    for_operators: bool,
) -> Result<(), ProblemDetails> {
    let sender = &request.sender;
    if sender.is_from_page() && sender.is_cross_site(is_https(request, peer)) {
        return Err(ProblemDetails::cross_site());
    }
    // By GET, a page of the same site sends neither header. So names always count where answers tell about clients.
    if for_operators || peer.role == HttpRole::Admin || sender.is_from_page() {
        check_host(sender.host, peer)?;
    }
    if request.method == Method::Post && !request.body.is_empty() && !sender.has_json() {
        return Err(ProblemDetails::not_json());
    }
    Ok(())
}

/// Returns the problem of a request to `/v1/gate` that no proxy has sent.
///
/// The headers may be those of a proxy's client, whose site is not ours, and so may the host: that cannot be checked.
/// But a proxy is trusted, or adds headers that a page of another site cannot send.
pub(super) fn check_proxy(
    request: &HttpRequest<'_>,
    proxied: &ProxiedRequest<'_>,
) -> Result<(), ProblemDetails> {
    if request.sender.is_from_page() && !proxied.is_from_proxy() {
        return Err(ProblemDetails::not_a_proxy());
    }
    Ok(())
}

/// Returns the problem of a request that asks by a name that is not one of the gate's.
pub(super) fn check_host(host: &[u8], peer: &HttpPeer<'_>) -> Result<(), ProblemDetails> {
    // Only HTTP/1.0 has requests without a host, and no browser sends them.
    let is_known =
        |host: HostHeader<'_>| host.is_address_or_localhost() || peer.settings.hosts.contain(host.name);
    if host.is_empty() || HostHeader::parse(host).is_some_and(is_known) {
        return Ok(());
    }
    Err(ProblemDetails::unknown_host(host, peer.role.name()))
}

/// Returns whether the browser speaks TLS: to a proxy in front, if there is one that says so, or else to the gate. A
/// page of another site cannot send the header of a proxy unasked.
fn is_https(request: &HttpRequest<'_>, peer: &HttpPeer<'_>) -> bool {
    let said = request.head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked("x-forwarded-proto:".len())?;
        name.eq_ignore_ascii_case(b"x-forwarded-proto:").then(|| value.trim_ascii())
    });
    said.map_or(peer.has_tls, |protocol| protocol.eq_ignore_ascii_case(b"https"))
}
