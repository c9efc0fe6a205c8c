//! Rejects requests that the upstream might understand in another way than the proxy does.
//!
//! A request that is hidden in another one would not be limited.

use hyper::header::{HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode, Uri, Version};
use tollway_tower::Rejection;

const CONNECT: Rejection =
    Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported: this is not a forward proxy\n");
const CODING: Rejection =
    Rejection::new(StatusCode::NOT_IMPLEMENTED, "the only supported transfer coding is chunked\n");
const TARGET: Rejection = Rejection::new(StatusCode::BAD_REQUEST, "the request target is invalid\n");
const HOSTS: Rejection =
    Rejection::new(StatusCode::BAD_REQUEST, "the request must have exactly one valid Host header\n");

/// Returns the rejection of a request that can be understood in two ways.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), Rejection> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    if method == Method::CONNECT {
        return Err(CONNECT);
    }
    if !is_plain_or_chunked(headers) {
        return Err(CODING);
    }
    if !is_target(uri, method) {
        return Err(TARGET);
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => Ok(()),
        (None, _) if uri.authority().is_some() || request.version() == Version::HTTP_10 => Ok(()),
        _ => Err(HOSTS),
    }
}

/// Returns true if the body has no coding that the proxy would have to undo. Chunks are made anew for the upstream.
fn is_plain_or_chunked(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    codings.next().is_none_or(is_chunked) && codings.next().is_none()
}

fn is_target(uri: &Uri, method: &Method) -> bool {
    let is_host = uri.authority().is_none_or(|authority| !authority.as_str().contains('@'));
    let has_scheme = uri.scheme().is_some() || uri.authority().is_none();
    let is_path = uri.path().starts_with('/') || *method == Method::OPTIONS;
    is_host && has_scheme && is_path
}

fn is_host(host: &HeaderValue) -> bool {
    Authority::try_from(host.as_bytes()).is_ok_and(|authority| !authority.as_str().contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, uri: &str, version: Version, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri(uri).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let rejection = check(&request.body(()).unwrap()).err()?;
        Some(rejection.response(None).status().as_u16())
    }

    #[test]
    fn a_request_is_for_one_host_and_one_path() {
        const HTTP_1: Version = Version::HTTP_11;
        for (method, uri, version, headers, expected) in [
            ("GET", "/", HTTP_1, &[("host", "a:1")][..], None),
            ("GET", "/", HTTP_1, &[], Some(400)),
            ("GET", "/", HTTP_1, &[("host", "")], Some(400)),
            ("GET", "/", HTTP_1, &[("host", "u@a")], Some(400)),
            ("GET", "/", HTTP_1, &[("host", "a/b")], Some(400)),
            ("GET", "/", HTTP_1, &[("host", "a"), ("host", "a")], Some(400)),
            ("GET", "/", Version::HTTP_10, &[], None),
            ("GET", "http://a/", Version::HTTP_2, &[], None),
            ("GET", "http://u@a/", Version::HTTP_2, &[], Some(400)),
            ("GET", "http://a/", HTTP_1, &[("host", "b")], None),
            ("GET", "a:1", HTTP_1, &[("host", "a")], Some(400)),
            ("OPTIONS", "*", HTTP_1, &[("host", "a")], None),
            ("GET", "*", HTTP_1, &[("host", "a")], Some(400)),
            ("CONNECT", "a:1", HTTP_1, &[("host", "a")], Some(405)),
        ] {
            assert_eq!(status(method, uri, version, headers), expected, "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn a_body_is_chunked_or_plain() {
        for (codings, expected) in [
            (&["Chunked"][..], None),
            (&["gzip, chunked"], Some(501)),
            (&["chunked", "chunked"], Some(501)),
            (&["chunked, identity"], Some(501)),
        ] {
            let mut headers = vec![("host", "a")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            assert_eq!(status("POST", "/", Version::HTTP_11, &headers), expected, "{codings:?}");
        }
    }
}
