//! Property tests of the HTTP codec: any bytes, in any pieces, never panic and read the same.

use proptest::prelude::*;
use tollway_core::{ChargeRequest, IdFormat, Network, RuleRef, RuleRequest, Timestamp, Verb};
use tollway_wire::http::{
    BucketReport, ChargeRequests, EventDecoder, Framer, FramerEvent, GateQuery, HttpCommand, HttpRuleRequest,
    IdSource, InspectQuery, KeysPage, KeysQuery, LiveEvent, ProxiedRequest, RuleExplanation, RuleResponse,
    ServerResponse, StateSummary, ThrottlecrabRequest,
};

const HEAD_MAX: usize = 512;
const BODY_MAX: usize = 256;

/// Returns what the framer finds in `bytes` when they arrive in pieces that end at `cuts`.
fn frame(bytes: &[u8], cuts: &[usize]) -> Vec<String> {
    let (mut framer, mut seen) = (Framer::new(HEAD_MAX, BODY_MAX), Vec::new());
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        loop {
            match framer.next(&bytes[start..end.clamp(start, bytes.len())]) {
                Ok(FramerEvent::Request(request)) => {
                    assert!(request.len > 0 && request.body.len() <= BODY_MAX);
                    seen.push(format!("{request:?}"));
                    start += request.len;
                }
                Ok(FramerEvent::Continue) => {}
                Ok(FramerEvent::Incomplete(_)) => break,
                // The pieces may decide which of several errors is found first, but not whether there is one.
                Err(_) => {
                    seen.push("refused".to_owned());
                    return seen;
                }
            }
        }
    }
    seen
}

/// Generates pieces of requests and complete requests. Random bytes alone never get past the first line.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(&b"POST /v1/spend HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345"[..])
            .prop_map(<[u8]>::to_vec),
        Just(&b"GET /v1/gate?limit=L&id=a HTTP/1.1\r\nHost: a\r\n\r\n"[..]).prop_map(<[u8]>::to_vec),
        Just(&b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"[..])
            .prop_map(<[u8]>::to_vec),
        Just(&b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"[..])
            .prop_map(<[u8]>::to_vec),
        Just(&b"3;a=b\r\nabc\r\n"[..]).prop_map(<[u8]>::to_vec),
        Just(&b"0\r\n\r\n"[..]).prop_map(<[u8]>::to_vec),
        Just(&b"\r\n"[..]).prop_map(<[u8]>::to_vec),
        Just(&b"Content-Length: 1\r\n"[..]).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    // The framer looks at complete lines only, so the last line is completed here.
    prop::collection::vec(piece, 0..12).prop_map(|pieces| [&pieces.concat()[..], b"\r\n\r\n"].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn pieces_do_not_change_what_is_read(bytes in traffic(), mut cuts in prop::collection::vec(0usize..400, 0..30)) {
        cuts.sort_unstable();
        prop_assert_eq!(frame(&bytes, &[]), frame(&bytes, &cuts));
    }

    #[test]
    fn bytes_one_at_a_time_do_not_change_what_is_read(bytes in traffic()) {
        let cuts: Vec<_> = (0..bytes.len()).collect();
        prop_assert_eq!(frame(&bytes, &[]), frame(&bytes, &cuts));
    }

    #[test]
    fn any_body_is_a_command_or_an_explanation(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for verb in [Verb::Spend, Verb::Check, Verb::Refund, Verb::Reset] {
            if let Err(malformed) = HttpCommand::from_json(verb, &body) {
                prop_assert!(!malformed.detail.is_empty());
            }
        }
        for status in [200, 404] {
            let _ = ServerResponse::from_json(status, &body);
            let _ = BucketReport::from_json(status, &body);
            let _ = KeysPage::from_json(status, &body);
            let _ = RuleResponse::from_json(status, &body);
            let _ = RuleExplanation::from_json(status, &body);
        }
        for asked in [HttpRuleRequest::from_json(&body), HttpRuleRequest::for_rule("r", &body)] {
            prop_assert!(asked.is_ok() || !asked.unwrap_err().detail.is_empty());
        }
    }

    #[test]
    fn any_json_asks_for_a_rule_or_is_explained(
        body in r#"\{"(rule|selectors|key|x)":("[a-z\\"]{0,4}"|-?[0-9.eE+-]{1,24}|\{"[a-z]{0,2}":("\\u00[0-9a-f]{2}"|null|true|-?[0-9]{1,3}|\[\]),?\}?|null)(,"(rule|key)":"a"|,"selectors":\{\}){0,2}\}?"#,
    ) {
        if let Ok(asked) = HttpRuleRequest::from_json(body.as_bytes()) {
            let mut again = Vec::new();
            asked.put_json(&mut again);
            prop_assert_eq!(HttpRuleRequest::from_json(&again), Ok(asked));
        }
        if let Ok(asked) = HttpRuleRequest::for_rule("r", body.as_bytes()) {
            let mut again = Vec::new();
            asked.put_json_without_rule(&mut again);
            prop_assert_eq!(HttpRuleRequest::for_rule("r", &again), Ok(asked));
        }
    }

    #[test]
    fn any_json_is_a_command_or_an_explanation(
        body in r#"\{"(limit|id|cost|charges|kind|x)":("[a-z\\"]{0,4}"|-?[0-9.eE+-]{1,24}|\[\{"(id|cost)":1?\}?\]|\{"(burst|count|x)":[0-9]{1,20},"(period|count)":("[0-9]{1,3}[smhx]"|[0-9]{1,20})\}?|null|NaN)(,"id":"a")?\}?"#,
    ) {
        let _ = ThrottlecrabRequest::from_json(body.as_bytes());
        for verb in [Verb::Spend, Verb::Check, Verb::Refund, Verb::Reset] {
            if let Ok(command) = HttpCommand::from_json(verb, body.as_bytes()) {
                prop_assert!(!command.charges().is_empty());
                let mut again = Vec::new();
                command.put_json(&mut again).unwrap();
                prop_assert_eq!(HttpCommand::from_json(verb, &again), Ok(command));
            }
        }
    }

    #[test]
    fn any_query_is_a_question_or_an_explanation(query in "(limit|id|cursor|count|x)=[%a-f0-9&=+é]{0,30}(&id=a)?(&limit=L)?") {
        if let Ok(asked) = InspectQuery::from_query(&query) {
            let again = asked.to_query();
            prop_assert_eq!(InspectQuery::from_query(&again), Ok(asked));
        }
        if let Ok(asked) = KeysQuery::from_query(&query) {
            let again = asked.to_query();
            prop_assert_eq!(KeysQuery::from_query(&again), Ok(asked));
        }
    }

    #[test]
    fn any_query_is_a_gate_or_an_explanation(query in "((limit|id|id_from|cost|rule|user|user_from|key|deny_status|path|x)=([%a-f0-9=+é]{0,12}|client_ip|header:[a-z:]{0,4}|path|401)&?){0,6}") {
        if let Ok(gate) = GateQuery::from_query(&query) {
            prop_assert!(!gate.charges.is_empty() || !gate.rules.is_empty());
            let is_last = gate.original_target.is_none_or(|target| query.ends_with(target));
            prop_assert!(is_last);
        }
    }

    #[test]
    fn any_proxied_request_has_an_id_or_an_explanation(
        headers in "((X-Forwarded-(For|Uri|Host|Method)|X-Original-(URI|Method)|a):[ -~]{0,20}\r\n){0,6}",
        source in "(client_ip|header:a|path|host|method)",
        trusted in any::<bool>(),
    ) {
        let head = format!("GET /v1/gate/b?limit=L&id_from={source} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        let mut framer = Framer::new(1 << 16, 0);
        let trusted: &[Network] = if trusted { &["0.0.0.0/0".parse().unwrap()] } else { &[] };
        if let Ok(FramerEvent::Request(request)) = framer.next(head.as_bytes()) {
            let peer = "192.0.2.1".parse().unwrap();
            let proxied = ProxiedRequest::new(&request, None, peer, trusted);
            let gate = GateQuery::from_query(request.query).unwrap();
            for charge in gate.charges {
                let is_client = charge.id == IdSource::ClientIp;
                match charge.into_request(&proxied, IdFormat::IP) {
                    Ok(charge) => {
                        prop_assert!(!charge.id.is_empty());
                        prop_assert!(!is_client || IdFormat::IP.canonical(&charge.id).is_ok());
                    }
                    Err(malformed) => prop_assert_eq!(malformed.field.as_deref(), Some("id_from")),
                }
            }
        }
    }
}

#[test]
fn an_inline_limit_has_a_burst_a_count_and_a_period_in_either_form() {
    let full = br#"{"limit":{"burst":5,"count":10,"period":"1m30s"},"id":"a"}"#;
    let command = HttpCommand::from_json(Verb::Spend, full).unwrap();
    let mut again = Vec::new();
    command.put_json(&mut again).unwrap();
    assert_eq!(HttpCommand::from_json(Verb::Spend, &again), Ok(command));
    let [seconds, text] = [r#"{"count":10,"period":90}"#, r#"{"burst":10,"count":10,"period":"90s"}"#]
        .map(|limit| format!(r#"{{"limit":{limit},"id":"a"}}"#));
    assert_eq!(
        HttpCommand::from_json(Verb::Spend, seconds.as_bytes()),
        HttpCommand::from_json(Verb::Spend, text.as_bytes()),
        "the burst is the count, and a period without a unit is seconds"
    );
    for (limit, field, words) in [
        (r#"{"period":"1m"}"#, "limit", "\"count\" is missing"),
        (r#"{"count":0,"period":1}"#, "limit.count", "count must be above zero"),
        (r#"{"count":0,"period":1,"burst":0}"#, "limit.burst", "burst must be above zero"),
        (r#"{"count":1,"period":0}"#, "limit.period", "period must be above zero"),
        (r#"{"count":9,"period":"1ns"}"#, "limit.count", "count must be at most 1 for this period"),
        (r#"{"count":1,"period":"1h","burst":9000000}"#, "limit.burst", "burst must be at most"),
        (
            r#"{"count":1,"period":"60"}"#,
            "limit.period",
            "\"60\" has no unit; use ns, us, ms, s, m, h or d, such as 60s",
        ),
        (r#"{"count":1}"#, "limit", "\"period\" is missing"),
        (r#"{"count":1,"period":true}"#, "limit.period", "a duration such as \"1m30s\", or whole seconds"),
        (r#"{"count":1,"period":"soon"}"#, "limit.period", "period"),
        ("true", "limit", "a string, or an object such as"),
    ] {
        let body = format!(r#"{{"limit":{limit},"id":"a"}}"#);
        let error = HttpCommand::from_json(Verb::Spend, body.as_bytes()).unwrap_err();
        assert!(error.detail.contains(words), "{limit}: {}", error.detail);
        assert_eq!(error.field.as_deref(), Some(field), "{limit}");
    }
}

#[test]
fn a_command_with_an_id_that_is_no_text_cannot_be_json() {
    let rule = RuleRequest { rule: RuleRef::Named("upload".to_owned()), key: None, selectors: Vec::new() };
    let charge = |id: &'static [u8]| ChargeRequests::One(ChargeRequest::new("Login", id, 1));
    let command = HttpCommand::new(Verb::Spend, charge(b"alice")).with_rules(vec![rule]);
    let mut body = Vec::new();
    command.put_json(&mut body).unwrap();
    assert_eq!(HttpCommand::from_json(Verb::Spend, &body), Ok(command));
    let error = HttpCommand::new(Verb::Spend, charge(b"a\xff")).put_json(&mut body).unwrap_err();
    assert!(error.to_string().starts_with(r#"id "a\xff" is not UTF-8"#), "{error}");
}

#[test]
fn a_state_is_shown_to_people() {
    let at = Timestamp::from_nanos(1_500_000_000);
    for (state, shown) in [
        (StateSummary::TokenBucket { full_at: at }, "full_at 1970-01-01T00:00:01.5Z"),
        (
            StateSummary::SlidingLog { entries: 2, oldest: Timestamp::EPOCH, newest: at },
            "entries 2, oldest 1970-01-01T00:00:00Z, newest 1970-01-01T00:00:01.5Z",
        ),
        (
            StateSummary::SmoothedRate { rate: 0.5, measured_at: at },
            "rate 0.5, measured_at 1970-01-01T00:00:01.5Z",
        ),
        (StateSummary::Quota { used: 3, expires_at: at }, "used 3, expires_at 1970-01-01T00:00:01.5Z"),
        (StateSummary::FixedWindow { used: 3, ends_at: at }, "used 3, ends_at 1970-01-01T00:00:01.5Z"),
        (
            StateSummary::SlidingWindow { current: 1, previous: 2, ends_at: at },
            "current 1, previous 2, ends_at 1970-01-01T00:00:01.5Z",
        ),
    ] {
        assert_eq!(state.to_string(), shown);
    }
}

#[test]
fn a_history_reads_back_and_an_unknown_event_is_none() {
    let history =
        r#"{"step":1,"until":1700000000,"allowed":[3,4],"denied":[0,1],"degraded":[0,0],"limits":[]}"#;
    let stream = format!("event: history\ndata: {history}\n\nevent: news\ndata: 1\n\n");
    let mut decoder = EventDecoder::default();
    decoder.push(stream.as_bytes());
    let [first, second] = [(); 2].map(|()| decoder.next_event().unwrap().unwrap());
    assert!(matches!(LiveEvent::from_event(&second), Ok(None)), "a later server may send it");
    let mut again = Vec::new();
    LiveEvent::from_event(&first).unwrap().unwrap().put_event(&mut again);
    decoder.push(&again);
    let read = LiveEvent::from_event(&decoder.next_event().unwrap().unwrap());
    assert!(matches!(read, Ok(Some(LiveEvent::History(read))) if read.allowed == [3, 4]));
}
