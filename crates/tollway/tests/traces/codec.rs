//! The trace format read back: nothing that can be asked is lost, and nothing that can be read breaks the reader.

use proptest::collection::vec;
use proptest::prelude::*;
use tollway::core::Timestamp;
use tollway::core::Verb;
use tollway::core::{ChargeKind, ChargeRequest, Nanos, RuleDecision, RuleRef, RuleRequest, Verdict};
use tollway::trace::{LimitRequest, TraceEvent, TraceReader, TraceReply, TraceRequest, matches, parse_line};

fn verb() -> impl Strategy<Value = Verb> {
    proptest::sample::select(&Verb::ALL[..])
}

/// Any bytes, most of them such that could be taken for something else.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let tricky = proptest::sample::select(&b" =>:#\\x20cost=1\n\t\r\x00\x7f\xff"[..]);
    let whole = proptest::sample::select(vec!["(none)", "error", "=>", " => ", "a => b"]);
    let whole = whole.prop_map(|text| text.as_bytes().to_vec());
    prop_oneof![4 => vec(tricky, 0..12), 4 => vec(any::<u8>(), 0..12), 1 => whole]
}

fn request() -> impl Strategy<Value = TraceRequest> {
    prop_oneof![
        limit_request().prop_map(TraceRequest::Limit),
        rule_request().prop_map(TraceRequest::Rule),
        bytes().prop_map(TraceRequest::Text),
        vec(any::<u8>(), 1..40).prop_map(TraceRequest::Throttr),
        vec(word(), 1..7).prop_map(TraceRequest::Resp),
        vec(frame(), 1..7).prop_map(TraceRequest::Smockron),
        json().prop_map(TraceRequest::Rls),
        configuration().prop_map(TraceRequest::Reload),
    ]
}

/// Makes a word of a command, often with quotes in it.
fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![bytes(), "[a\"' =>\\\\]{0,6}".prop_map(String::into_bytes)]
}

/// Makes a frame that holds bytes, or text of any language.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![bytes(), any::<String>().prop_map(String::into_bytes)]
}

/// Makes a JSON object on one line, as both sides of the gate `rls` write it. An arrow between spaces would end a
/// request.
fn json() -> impl Strategy<Value = String> {
    "[a-z]{0,5}(=|\\\\u00fc|,:){0,3}".prop_map(|text| format!("{{\"domain\":\"{text}\"}}"))
}

/// Makes a text on one line, nearly a configuration.
fn configuration() -> impl Strategy<Value = String> {
    "[!-~]([a-z{}:, \"#=]{0,9}[!-~])?".prop_filter("an arrow between spaces ends a request", |text| {
        text.split(' ').all(|field| field != "=>")
    })
}

/// Makes a reply that may come back at the gate of `request`.
fn reply(request: &TraceRequest) -> BoxedStrategy<TraceReply> {
    let error = any::<String>().prop_map(TraceReply::Error);
    match request {
        TraceRequest::Limit(_) => {
            let ruled = (ruling(), rule_request());
            let ruled = ruled.prop_map(|(decision, RuleRequest { rule, .. })| TraceReply::DecidedByRule {
                decision,
                rule,
            });
            prop_oneof![error, ruled].boxed()
        }
        TraceRequest::Rule(_) => prop_oneof![error, ruling().prop_map(TraceReply::RuleDecision)].boxed(),
        TraceRequest::Text(_) => {
            let text =
                bytes().prop_map(|bytes| TraceReply::Text(Some(bytes).filter(|bytes| !bytes.is_empty())));
            prop_oneof![error, text].boxed()
        }
        TraceRequest::Throttr(_) => {
            prop_oneof![error, vec(any::<u8>(), 0..40).prop_map(TraceReply::Throttr)].boxed()
        }
        TraceRequest::Resp(_) => {
            proptest::sample::select(&["", "+OK", "*2 :1 \"a  \\\"b\\n\"", "-ERR no"][..])
                .prop_map(|text| TraceReply::Resp(text.to_owned()))
                .boxed()
        }
        TraceRequest::Smockron(_) => {
            prop_oneof![error, vec(vec(frame(), 0..5), 0..4).prop_map(TraceReply::Smockron)].boxed()
        }
        TraceRequest::Rls(_) => prop_oneof![error, json().prop_map(TraceReply::Rls)].boxed(),
        TraceRequest::Reload(_) => prop_oneof![error, Just(TraceReply::Reloaded)].boxed(),
    }
}

fn limit_request() -> impl Strategy<Value = LimitRequest> {
    let charge = (any::<String>(), bytes(), any::<u64>(), proptest::sample::select(&ChargeKind::ALL[..]));
    let parts = (vec(charge, 0..5), vec(rule_request(), 0..3));
    let parts = parts.prop_filter("a bill has a part", |(charges, rules)| charges.len() + rules.len() > 0);
    (verb(), parts).prop_map(|(verb, (charges, rules))| {
        let charge = |(limit, id, cost, kind): (String, Vec<u8>, _, _)| {
            let request = ChargeRequest::new(&limit, &id, 0).into_owned();
            if verb == Verb::Reset { request } else { ChargeRequest { cost, kind, ..request } }
        };
        LimitRequest { verb, charges: charges.into_iter().map(charge).collect(), rules }
    })
}

fn rule_request() -> impl Strategy<Value = RuleRequest<'static>> {
    let name = || prop_oneof!["key|rule|user|[a-z]{1,3}", ".{1,6}"];
    let tricky =
        proptest::sample::select(&["\"", " ", "=", ">", " => ", "'", "Or(", "1/s", "\\", "\n", "\u{fc}"][..]);
    let written = vec(tricky, 0..12).prop_map(|parts| RuleRef::Written(parts.concat()));
    let rule = prop_oneof![name().prop_map(RuleRef::Named), written];
    let selectors = proptest::collection::btree_map(name(), bytes(), 0..5);
    (rule, proptest::option::of(".{0,5}"), selectors).prop_map(|(rule, key, selectors)| RuleRequest {
        rule,
        key: key.map(Into::into),
        selectors: selectors.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
    })
}

fn ruling() -> impl Strategy<Value = RuleDecision> {
    use Verdict::{Allow, AllowFull, AllowUnreachable, Deny, DenyFull, DenyUnreachable};
    let verdict =
        proptest::sample::select(&[Allow, Deny, AllowFull, DenyFull, AllowUnreachable, DenyUnreachable][..]);
    (verdict, any::<u64>(), any::<bool>()).prop_map(|(verdict, nanos, degraded)| {
        let mut decision = RuleDecision::new(verdict, Nanos::new(nanos));
        decision.degraded = degraded;
        decision
    })
}

fn read(line: &[u8]) -> TraceEvent {
    parse_line(line, 1).unwrap_or_else(|error| panic!("{error}")).expect("an event")
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        at in 0..=Timestamp::MAX.as_nanos(),
        (request, reply) in request().prop_flat_map(|request| (Just(request.clone()), reply(&request))),
    ) {
        let at = Timestamp::from_nanos(at);
        let asked = read(format!("{at}  {request}").as_bytes());
        prop_assert_eq!((asked.at, &asked.request, &asked.expected), (at, &request, &None));

        let answered = read(asked.with_reply(&reply).to_string().as_bytes());
        prop_assert_eq!((answered.at, &answered.request), (at, &request));
        prop_assert!(matches(answered.expected.as_deref().unwrap(), &reply));
    }

    #[test]
    fn whatever_is_read_is_an_event_or_an_error_within_the_line(line in vec(any::<u8>(), 0..80)) {
        if let Err(error) = parse_line(&line, 7) {
            prop_assert_eq!(error.line, 7);
            prop_assert!((1..=line.len() + 1).contains(&error.column));
        }
    }

    #[test]
    fn almost_an_event_is_an_event_or_an_error_within_the_line(
        line in "(0s|1.5s|5|[0-9]{1,20}[a-z]{0,2}) {1,2}(limit|rule|text|throttr|smockron|reload|) {0,2}([0-9a-f]{2}|[\\[\\],a\"]{0,9}|spend|check|refund|reset|\"[ -~]{0,5}\"|)( [Ab:]{0,3}[ -~]{0,4}| (key|u)=[!-~]{0,3}| cost=[0-9]{0,21}| =>| \\\\x?[0-9a-g]{0,3}){0,5}"
    ) {
        match parse_line(line.as_bytes(), 1) {
            Ok(event) => {
                let event = event.expect("no comment and not blank");
                prop_assert_eq!(read(format!("{}  {}", event.at, event.request).as_bytes()).request, event.request);
            }
            Err(error) => prop_assert!((1..=line.len() + 1).contains(&error.column), "{error}"),
        }
    }

    #[test]
    fn a_stream_of_anything_ends(stream in vec(any::<u8>(), 0..400)) {
        let events = TraceReader::new(&stream[..]).count();
        prop_assert!(events <= stream.len() + 1);
    }
}
