//! Checks that any bytes are a request to Envoy's rate limit service or an error, and that the bill of a request is
//! within its bounds.
#![no_main]

mod descriptors;

use libfuzzer_sys::fuzz_target;
use tollway_core::bill::CHARGES_MAX;
use tollway_core::descriptor::ENTRIES_MAX;
use tollway_wire::rls;

use crate::descriptors::check_bill;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = rls::decode(bytes) {
        assert!(request.descriptors.len() <= CHARGES_MAX);
        assert!(request.descriptors.iter().all(|descriptor| descriptor.entries.len() <= ENTRIES_MAX));
        check_bill(&request);
    }
});
