//! Checks that any body of a server is an answer or an error for a client, and that an answer reads back as it was
//! encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::http::{BucketReport, KeysPage, RuleExplanation, RuleResponse, ServerResponse, TopReport};

const STATUSES: [u16; 4] = [200, 404, 429, 503];

fuzz_target!(|input: (u8, &[u8])| {
    let (which, body) = input;
    let status = STATUSES[usize::from(which >> 4) % STATUSES.len()];
    match which % 6 {
        0 => drop(ServerResponse::from_json(status, body)),
        1 => drop(RuleResponse::from_json(status, body)),
        2 => {
            if let Ok(page) = KeysPage::from_json(status, body) {
                let again = encoded(|out| page.put_json(out));
                assert_eq!(KeysPage::from_json(status, &again).ok(), Some(page));
            }
        }
        3 => {
            if let Ok(explained) = RuleExplanation::from_json(status, body) {
                let again = encoded(|out| explained.put_json(out));
                assert_eq!(RuleExplanation::from_json(status, &again).ok(), Some(explained));
            }
        }
        4 => {
            if let Ok(inspected) = BucketReport::from_json(status, body) {
                let again = encoded(|out| inspected.put_json(out));
                assert_eq!(BucketReport::from_json(status, &again).ok(), Some(inspected));
            }
        }
        _ => {
            if let Ok(top) = TopReport::from_json(status, body) {
                let again = encoded(|out| top.put_json(out));
                assert_eq!(TopReport::from_json(status, &again).ok(), Some(top));
            }
        }
    }
});

fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out);
    out
}
