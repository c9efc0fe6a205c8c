//! Checks that the framer finds the same requests however the bytes of a client are cut, and that every header that it
//! reads can be asked for.
#![no_main]

mod pieces;

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use tollway_core::{IdFormat, Network};
use tollway_wire::http::{Framer, FramerEvent, HostHeader, HttpRequest, IdSource, ProxiedRequest};

use crate::pieces::ends;

const HEAD_MAX: usize = 512;
const BODY_MAX: usize = 256;

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let at_once = frame(bytes, bytes.len());
    let in_pieces = frame(bytes, usize::from(cut));
    // A line is looked at when it ends, so pieces may find a fault later, and then fewer or another.
    assert!(at_once.starts_with(&in_pieces) || in_pieces.starts_with(&at_once));
});

/// Returns the path, the query and the body of each request in `bytes`, which arrive `piece` at a time.
fn frame(bytes: &[u8], piece: usize) -> Vec<u8> {
    let (mut framer, mut found, mut start) = (Framer::new(HEAD_MAX, BODY_MAX), Vec::new(), 0);
    for end in ends(bytes.len(), piece) {
        loop {
            match framer.next(&bytes[start..end.max(start)]) {
                Ok(FramerEvent::Request(request)) => {
                    ask_for_headers(&request);
                    for part in [request.path.as_bytes(), request.query.as_bytes(), request.body] {
                        found.extend_from_slice(&part.len().to_le_bytes());
                        found.extend_from_slice(part);
                    }
                    start += request.len;
                }
                Ok(FramerEvent::Continue) => {}
                Ok(FramerEvent::Incomplete(_)) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

fn ask_for_headers(request: &HttpRequest<'_>) {
    let trusted = ["0.0.0.0/0".parse::<Network>().expect("a network")];
    let proxied = ProxiedRequest::new(request, None, Ipv4Addr::LOCALHOST.into(), &trusted);
    for source in [IdSource::ClientIp, IdSource::Path, IdSource::Host, IdSource::Method] {
        let _ = proxied.id(source, IdFormat::Any);
    }
    let sender = &request.sender;
    let _ = (sender.is_cross_site(false), sender.has_json(), sender.bearer_token(), sender.trace_parent());
    let _ = (sender.is_from_page(), proxied.is_from_proxy());
    let _ = HostHeader::parse(sender.host).map(|host| host.is_address_or_localhost());
}
