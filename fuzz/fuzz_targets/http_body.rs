//! Checks that any body of a client is a command or is refused, and that a command reads back as it was encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_core::Verb;
use tollway_wire::http::{HttpCommand, HttpRuleRequest, ThrottlecrabRequest};

const VERBS: [Verb; 4] = [Verb::Spend, Verb::Check, Verb::Refund, Verb::Reset];

fuzz_target!(|input: (u8, &[u8])| {
    let (which, body) = input;
    match usize::from(which) % (VERBS.len() + 2) {
        4 => read_rule(body),
        5 => {
            if let Ok(asked) = ThrottlecrabRequest::from_json(body) {
                let _ = asked.charge();
            }
        }
        verb => read_command(VERBS[verb], body),
    }
});

fn read_command(verb: Verb, body: &[u8]) {
    if let Ok(command) = HttpCommand::from_json(verb, body) {
        let mut again = Vec::new();
        command.put_json(&mut again).expect("an id that was read from JSON is UTF-8");
        assert_eq!(HttpCommand::from_json(verb, &again).as_ref(), Ok(&command));
    }
}

fn read_rule(body: &[u8]) {
    let _ = HttpRuleRequest::for_rule("upload", body);
    if let Ok(asked) = HttpRuleRequest::from_json(body) {
        let mut again = Vec::new();
        asked.put_json(&mut again);
        assert_eq!(HttpRuleRequest::from_json(&again).as_ref(), Ok(&asked));
        again.clear();
        asked.put_json_without_rule(&mut again);
        assert_eq!(HttpRuleRequest::for_rule(&asked.rule, &again).as_ref(), Ok(&asked));
    }
}
