//! Checks that any query string is a query or is refused, and that a query reads back as it was encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_core::bill::{CHARGES_MAX, RULES_MAX};
use tollway_wire::http::{GateQuery, InspectQuery, KeysQuery, LiveQuery, TopQuery};

fuzz_target!(|input: (u8, &str)| {
    let (which, query) = input;
    match which % 5 {
        0 => {
            if let Ok(asked) = GateQuery::from_query(query) {
                assert!(asked.charges.len() <= CHARGES_MAX && asked.rules.len() <= RULES_MAX);
                assert!(asked.original_target.is_none_or(|target| query.ends_with(target)));
            }
        }
        1 => {
            if let Ok(asked) = InspectQuery::from_query(query) {
                assert_eq!(InspectQuery::from_query(&asked.to_query()), Ok(asked.clone()));
            }
        }
        2 => {
            if let Ok(asked) = KeysQuery::from_query(query) {
                assert_eq!(KeysQuery::from_query(&asked.to_query()), Ok(asked.clone()));
            }
        }
        3 => {
            if let Ok(asked) = TopQuery::from_query(query) {
                assert_eq!(TopQuery::from_query(&asked.to_query()), Ok(asked.clone()));
            }
        }
        _ => {
            if let Ok(LiveQuery::Record(asked)) = LiveQuery::from_query(query) {
                assert_eq!(LiveQuery::from_query(&asked.to_query()), Ok(LiveQuery::Record(asked)));
            }
        }
    }
});
