//! Checks that any bytes of a client are a command or are refused, and that the framer finds the same requests however
//! the bytes are cut.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use tollway_core::{IdFormat, Verb};
use tollway_wire::http::{
    BucketReport, Framer, FramerEvent, GateQuery, HostHeader, HttpCommand, HttpRuleRequest, IdSource,
    InspectQuery, KeysPage, KeysQuery, ProxiedRequest, RuleExplanation, RuleResponse, ServerResponse,
    ThrottlecrabRequest,
};

const HEAD_MAX: usize = 1024;
const BODY_MAX: usize = 1024;

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    for verb in [Verb::Spend, Verb::Check, Verb::Refund, Verb::Reset] {
        if let Ok(command) = HttpCommand::from_json(verb, bytes) {
            let mut again = Vec::new();
            command.put_json(&mut again).expect("an id that was read from JSON is UTF-8");
            assert_eq!(HttpCommand::from_json(verb, &again).as_ref(), Ok(&command));
        }
    }
    if let Ok(asked) = ThrottlecrabRequest::from_json(bytes) {
        let _ = asked.charge();
    }
    let _ = ServerResponse::from_json(200, bytes);
    let _ = KeysPage::from_json(200, bytes);
    let _ = RuleResponse::from_json(200, bytes);
    let _ = HttpRuleRequest::for_rule("upload", bytes);
    if let Ok(asked) = HttpRuleRequest::from_json(bytes) {
        let mut again = Vec::new();
        asked.put_json(&mut again);
        assert_eq!(HttpRuleRequest::from_json(&again), Ok(asked));
    }
    if let Ok(explained) = RuleExplanation::from_json(200, bytes) {
        let mut again = Vec::new();
        explained.put_json(&mut again);
        assert_eq!(RuleExplanation::from_json(200, &again).ok(), Some(explained));
    }
    if let Ok(inspected) = BucketReport::from_json(200, bytes) {
        let mut again = Vec::new();
        inspected.put_json(&mut again);
        assert_eq!(BucketReport::from_json(200, &again).ok(), Some(inspected));
    }
    if let Ok(query) = std::str::from_utf8(bytes) {
        let _ = GateQuery::from_query(query);
        let _ = GateQuery::from_query(&format!("limit=L&id_from={query}"));
        let _ = InspectQuery::from_query(query);
        let _ = KeysQuery::from_query(query);
    }
    let at_once = frame(bytes, bytes.len());
    let in_pieces = frame(bytes, usize::from(cut).max(1));
    // A line is looked at when it ends, so pieces may find a fault later, and then fewer or another.
    assert!(at_once.starts_with(&in_pieces) || in_pieces.starts_with(&at_once));
});

/// The requests found in `bytes`, arriving `piece` at a time.
fn frame(bytes: &[u8], piece: usize) -> Vec<(String, String, Vec<u8>)> {
    let (mut framer, mut found, mut start) = (Framer::new(HEAD_MAX, BODY_MAX), Vec::new(), 0);
    for end in (0..bytes.len()).step_by(piece.max(1)).skip(1).chain([bytes.len()]) {
        loop {
            match framer.next(&bytes[start..end.max(start)]) {
                Ok(FramerEvent::Request(request)) => {
                    let trusted = ["0.0.0.0/0".parse().expect("a network")];
                    let proxied = ProxiedRequest::new(&request, None, Ipv4Addr::LOCALHOST.into(), &trusted);
                    for source in [IdSource::ClientIp, IdSource::Path, IdSource::Host, IdSource::Method] {
                        let _ = proxied.id(source, IdFormat::Any);
                    }
                    let _ = (
                        request.sender.is_cross_site(false),
                        request.sender.has_json(),
                        proxied.is_from_proxy(),
                    );
                    let _ = HostHeader::parse(request.sender.host).map(|host| host.is_address_or_localhost());
                    found.push((request.path.to_owned(), request.query.to_owned(), request.body.to_vec()));
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
